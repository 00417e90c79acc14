"""CuPy and JAX from PyPI for ROCm 7, on Debian's ROCm 7.2: correct alone and under a tool.

Nothing of them is kept here. ``LUTHIER_TEST_CUPY`` and ``LUTHIER_TEST_JAX`` name folders that ``pip install --target``
made, of cupy-rocm-7-0, and of jax, jaxlib, jax-rocm7-pjrt and jax-rocm7-plugin. Both want libraries for profilers and
for several GPUs, which Debian does not have; functions of those fail here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from commands import run_luthier
from kept import kept
from kept import run as run_command
from rocm_stacks import stack

RELEASE = "7.2"
SHARED = ("libhipblas3", "libhipcub-dev", "libhipfft0", "libhiprand1", "libhipsparse4", "librocblas5", "librocfft0")
FOR_CUPY = (*SHARED, "libhiprand-dev", "librocrand-dev", "librocsolver0", "librocthrust-dev")
FOR_JAX = (*SHARED, "libhipblaslt1", "libhipsolver1", "libmiopen1", "librocm-smi64-1", "librocsolver0")
FOREIGN = Path(__file__).parent / "foreign"


def folder_of(name: str) -> Path:
    """Return the folder with a framework, where there is one."""
    variable = f"LUTHIER_TEST_{name}"
    if variable not in os.environ:
        pytest.skip(f"{variable} names no folder with {name}")
    return Path(os.environ[variable])


def stand_in(library: str, functions: Iterable[str], versions: str = "") -> str:
    """Return the folder of a library whose functions say that they failed."""
    source = "".join(f"int {function}(void) {{ return 1; }}\n" for function in functions)

    def build(path: Path) -> None:
        (path.parent / "source.c").write_text(source)
        (path.parent / "map").write_text(versions or "{ global: *; };")
        options = [f"-Wl,-soname,{library}", f"-Wl,--version-script={path.parent}/map"]
        run_command(["gcc", "-shared", "-fPIC", "-w", *options, str(path.parent / "source.c"), "-o", str(path)])

    return str(kept(("stand-in", library, source, versions), build, library).parent)


def wanted_of(module: Path, prefix: str) -> list[str]:
    """Return the functions with a prefix that a library imports."""
    listed = subprocess.run(["nm", "-D", "--undefined-only", module], check=True, capture_output=True, text=True)
    return re.findall(rf"\b({prefix}\w+)", listed.stdout)


def check(program: str, says: str, packages: tuple[str, ...], target: str, tmp_path: Path, **environment: str) -> None:
    """A program is right; under a tool every kernel is covered, and as much is counted as the device executes."""
    executed, summary = tmp_path / "executed.json", tmp_path / "summary.json"
    words = ["--device", f"emu:{target}", "--", sys.executable, FOREIGN / program]
    for options in (["--executed", "--json", executed], ["-t", "instr_count:per_wave=true", "--json", summary]):
        done = run_luthier("run", *options, *words, before=stack(RELEASE, *packages), env={**os.environ, **environment})
        assert (done.returncode, done.stdout) == (0, says), done.stderr
    report = json.loads(summary.read_text())
    own = [kernel for kernel in report["kernels"] if not kernel["skipped"]]
    assert len(own) > 5
    assert all(kernel["covered"] for kernel in own), own
    truth = sum(
        one["wave_instructions"]
        for one in json.loads(executed.read_text())["executed"]
        if one["kernel"] and not one["kernel"].startswith("__amd_")
    )
    assert [int(variable["value"]) for variable in report["variables"]] == [truth]


@pytest.mark.rocm(RELEASE, *FOR_CUPY)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1201"])
def test_cupy(tmp_path: Path, target: str) -> None:
    says = "sum\nelements\nsort\nraw kernel\nproduct\nFourier transform\nrandom numbers\nequations\n"
    folder = folder_of("CUPY")
    functions = ("roctracer_start", "roctracer_stop")
    tracer = stand_in("libroctracer64.so.4", functions, "ROCTRACER_4.0 { global: *; };")
    variables = {"PYTHONPATH": str(folder), "LD_LIBRARY_PATH": tracer, "ROCM_HOME": "/usr"}
    check("cupy_arrays.py", says, FOR_CUPY, target, tmp_path, **variables)


@pytest.mark.rocm(RELEASE, *FOR_JAX)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_jax(tmp_path: Path, target: str) -> None:
    folder = folder_of("JAX")
    plugin = folder / "jax_plugins/xla_rocm7/xla_rocm_plugin.so"
    libraries = {"librccl.so.1": "nccl", "librocprofiler-sdk.so.1": "rocprofiler_"}
    folders = [stand_in(library, wanted_of(plugin, prefix)) for library, prefix in libraries.items()]
    variables = {"PYTHONPATH": str(folder), "LD_LIBRARY_PATH": ":".join(folders), "JAX_PLATFORMS": "rocm"}
    variables["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"  # it times kernels and chooses different ones each time
    check("jax_training.py", "learned\nsorted\nsummed\n", FOR_JAX, target, tmp_path, **variables)
