"""One source compiled for the host and for the device: results equal to the bit, whatever the optimizer made of it."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device

from luthier_build.toolchain import Toolchain

SOURCE = Path(__file__).parents[1] / "kernels" / "arithmetic.hip"
ITEMS = 1024
# kernel: kinds of both inputs, results an item, width of a result
KERNELS = {
    "ints": ("u32 u32", 64, 4),
    "longs": ("u64 u64", 32, 8),
    "shorts": ("u16 u16", 32, 2),
    "packs": ("u32 u32", 16, 4),
    "floats": ("f32 f32", 48, 4),
    "doubles": ("f64 f64", 32, 8),
    "halfs": ("f16 f16", 32, 2),
    "flow": ("u32 u32", 2, 4),
    "calls": ("u32 u32", 2, 4),
}
BUILDS = [
    ("gfx906", "-O0"),
    ("gfx90a", "-O2"),
    ("gfx942", "-O3"),
    ("gfx1030", "-O1"),
    ("gfx1100", "-O2"),
    ("gfx1201", "-O2"),
]


@pytest.fixture(scope="session")
def host(tmp_path_factory):
    output = tmp_path_factory.mktemp("host") / "arithmetic.so"
    flags = ["-Xclang", "-ffloat16-excess-precision=none", "-ffp-contract=off", "-fwrapv", "-mf16c", "-mfma"]
    define = 'extern "C" thread_local unsigned current_item = 0;'
    unit = output.with_suffix(".cpp")
    unit.write_text(f'{define}\n#include "{SOURCE}"\nextern "C" void set_item(unsigned i) {{ current_item = i; }}\n')
    command = [
        Toolchain.find().clang,
        "-x",
        "c++",
        "-std=c++17",
        "-O1",
        *flags,
        "-fPIC",
        "-shared",
        unit,
        "-lm",
        "-o",
        output,
    ]
    subprocess.run([str(part) for part in command], check=True)
    return ctypes.CDLL(str(output))


@pytest.fixture(scope="session")
def expected(host, cases):
    """Inputs and the host's results of a kernel."""

    @functools.cache
    def compute(name):
        kinds, width, size = KERNELS[name]
        a, b = cases(kinds, random=ITEMS)
        order = np.random.default_rng(1).permutation(a.size)
        a, b = np.resize(a[order], ITEMS).copy(), np.resize(b[order], ITEMS).copy()
        if name == "flow":
            a %= 5000
        out = np.zeros(ITEMS * width, f"u{size}")
        function = getattr(host, name)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, out)]
        for item in range(ITEMS):
            host.set_item(item)
            function(*pointers)
        return a, b, out

    return compute


@pytest.fixture(scope="module", params=BUILDS, ids=lambda build: "".join(build))
def module(request, tmp_path_factory):
    target, level = request.param
    toolchain = Toolchain.find()
    output = tmp_path_factory.mktemp("device") / f"{target}.hsaco"
    command = [
        *(toolchain.clang, *toolchain.device_flags(target), level, "-std=c++17", "-ffp-contract=off"),
        *("--offload-device-only", "--no-gpu-bundle-output", SOURCE, "-o", output),
    ]
    subprocess.run([str(part) for part in command], check=True)
    return open_device(f"emu:{target}").load(output)


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", KERNELS)
def test_as_on_the_host(module, expected, name):
    a, b, wanted = expected(name)
    out = np.zeros_like(wanted)
    module.kernel(name).launch(a.copy(), b.copy(), out, grid=(ITEMS // 64, 1, 1), block=(64, 1, 1))
    different = out != wanted
    if name in ("floats", "doubles", "halfs"):
        kind = f"f{out.itemsize}"
        different &= ~(np.isnan(out.view(kind)) & np.isnan(wanted.view(kind)))
    width = KERNELS[name][1]
    wrong = [
        f"result {place % width} of {int(a[place // width]):#x}, {int(b[place // width]):#x}: "
        f"{int(out[place]):#x}, not {int(wanted[place]):#x}"
        for place in np.flatnonzero(different)[:5].tolist()
    ]
    assert not wrong, "\n".join(wrong)
