"""Compile a kernel in Zig for a GPU (PyPI's ziglang, and clang), launch it by HIP, and compare with NumPy."""

import subprocess
import sys
import tempfile
from ctypes import CDLL, POINTER, byref, c_float, c_int, c_uint, c_void_p, cast, pointer
from pathlib import Path

import numpy as np
import ziglang

HIP = CDLL("libamdhip64.so")
COUNT, GROUPS, WEIGHT = 1000, 16, 0.25


def compiled(target: str) -> bytes:
    """Return the code object of the kernel beside this file.

    Zig's own objects have a version of the system in their target, and kernels as local symbols, which HIP does not
    find. So clang makes the object of Zig's LLVM code, with kernels that are visible.
    """
    source = Path(__file__).with_suffix(".zig")
    options = ["-target", "amdgcn-amdhsa", f"-mcpu={target}", "-OReleaseFast", "-fno-strip", "-fno-emit-bin"]
    with tempfile.TemporaryDirectory() as folder:
        zig = [str(Path(ziglang.__file__).parent / "zig"), "build-obj", *options, str(source)]
        caches = [option for kind in ("", "global-") for option in (f"--{kind}cache-dir", folder)]
        code = Path(folder, "kernel.ll")
        subprocess.run([*zig, *caches, f"-femit-llvm-ir={code}"], check=True)
        code.write_text(code.read_text().replace("define internal amdgpu_kernel", "define protected amdgpu_kernel"))
        clang = ["clang", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-O2", "-w", "-nogpulib"]
        subprocess.run([*clang, str(code), "-o", f"{folder}/kernel"], check=True)
        return Path(folder, "kernel").read_bytes()


def call(name: str, *arguments: object) -> None:
    """Call a function of HIP."""
    code = getattr(HIP, name)(*arguments)
    assert code == 0, f"{name} failed with {code}"


first, second = np.random.default_rng(9).standard_normal((2, COUNT)).astype(np.float32)
module, kernel, output, inputs = (c_void_p() for _ in range(4))
call("hipModuleLoadData", byref(module), compiled(sys.argv[1]))
call("hipModuleGetFunction", byref(kernel), module, b"zig_kernel.blend")
for memory, values in ((output, first), (inputs, second)):
    call("hipMalloc", byref(memory), c_void_p(values.nbytes))
    call("hipMemcpy", memory, values.ctypes.data_as(c_void_p), c_void_p(values.nbytes), c_int(1))
values = (output, inputs, c_float(WEIGHT), c_uint(COUNT))
arguments = (c_void_p * len(values))(*(cast(pointer(value), c_void_p) for value in values))
call("hipModuleLaunchKernel", kernel, GROUPS, 1, 1, 64, 1, 1, 0, None, cast(arguments, POINTER(c_void_p)), None)
result = np.empty_like(first)
call("hipMemcpy", result.ctypes.data_as(c_void_p), output, c_void_p(result.nbytes), c_int(2))
np.testing.assert_allclose(result, first + (second - first) * WEIGHT, atol=1e-6)
print("equal to NumPy's")
