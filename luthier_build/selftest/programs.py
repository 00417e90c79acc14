"""Steps in a separate process: a program under the real ROCm."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import luthier
import numpy as np
from luthier.emulator.running.stats import LaunchStats
from luthier.errors import LuthierError
from luthier.run import devices_for, preflight
from luthier.run.machine_gpus import MachineGpus
from luthier.run.program import library_folder
from luthier.support.processes import run

from luthier_build import rocm
from luthier_build.selftest import devices, kernel
from luthier_build.selftest import program as hip_program
from luthier_build.selftest.steps import SelftestStep, Skip, check
from luthier_build.selftest.tools import compile_hook

COMMAND = [sys.executable, "-m", "luthier_build.selftest.apart"]
PATIENCE = 300
"""Most seconds of a step in a separate process."""


def under_rocm(name: str) -> list[SelftestStep]:
    """Return the steps for the virtual device ``emu:TARGET``."""
    where = f"{name}, ROCr"
    return [
        SelftestStep(where, "libraries", lambda: libraries(name)),
        SelftestStep(where, "program", lambda: ran(name, "program")),
        SelftestStep(where, "counters", lambda: ran(name, "counting")),
        SelftestStep(where, "hooks", lambda: ran(name, "hooked")),
    ]


def libraries(name: str) -> str:
    """Return the versions of the libraries that programs on a virtual device need."""
    try:
        chosen = devices_for(name, [sys.executable])
    except LuthierError as problem:
        raise Skip(str(problem)) from None
    installed = {library: rocm.find(library) for library in (rocm.ROCR, rocm.HIP)}
    missing = [name for name, library in installed.items() if library is None]
    if missing:
        raise Skip(f"programs need ROCm: {' and '.join(missing)} not found")
    rocr, hip = installed.values()
    assert rocr is not None
    assert hip is not None
    try:
        library_folder()
    except LuthierError as problem:
        raise Skip(str(problem)) from None
    if not isinstance(chosen, MachineGpus):
        base = {**os.environ, "LD_LIBRARY_PATH": str(rocr.path.parent)}
        if unknown := preflight.unknown_targets(sys.executable, chosen, base):
            raise Skip(unknown)
    return f"ROCr {rocr.version}, HIP {hip.version}"


def ran(name: str, what: str, target: str = "") -> str:
    """Run a HIP program and return a description of its result and of the instruction count.

    Args:
        name: name of the device.
        what: ``program``, ``counting`` or ``hooked``, see `luthier_build.selftest.apart`.
        target: target of a GPU; otherwise `name` has it.
    """
    libraries(name)
    target = target or name.partition(":")[2]
    if what == "hooked":
        compile_hook(target)
    with tempfile.TemporaryDirectory(prefix="luthier-selftest-") as folder:
        out = Path(folder) / "out"
        report = apart(what, name, target, *program_command(target, Path(folder), out))
        check(report["code"] == 0, f"the program's exit code is {report['code']}")
        devices.compare(np.frombuffer(out.read_bytes(), np.uint32))
    if what == "program":
        check(report["counted"] > 0, "the device executed nothing")
        return "result as computed by NumPy"
    check(not report["faults"], "; ".join(report["faults"]))
    check(report["instrumented"].get(kernel.NAME) == 1, f"the kernel was not instrumented: {report['instrumented']}")
    wanted = emulated_stats(target).instructions
    counted = report["counted"]
    check(counted == wanted, f"{counted} instructions counted; the emulated device executes {wanted}")
    return f"{wanted} instructions counted, as many as the emulated device executes; result unchanged"


def program_command(target: str, folder: Path, out: Path) -> list[str]:
    """Return the command of a HIP program without Luthier that launches the kernel once.

    Args:
        folder: gets the kernel's code object.
        out: file that the program writes its result to.
    """
    hip = rocm.find(rocm.HIP)
    assert hip is not None
    object = folder / "object"
    object.write_bytes(kernel.code_object(target).data)
    sizes = (kernel.ITEMS, kernel.GROUPS, kernel.ITEMS, kernel.TURNS)
    paths = (hip.path, object, kernel.NAME, out)
    return [sys.executable, hip_program.__file__, *map(str, paths + sizes)]


def emulated_stats(target: str) -> LaunchStats:
    """Return what the emulated device counts of the kernel."""
    beside = luthier.open_device(f"emu:{target}")
    devices.launch(beside, kernel.code_object(target).data)
    return beside.stats


def apart(*arguments: str) -> dict[str, Any]:
    """Run `luthier_build.selftest.apart` and return its report.

    Raises:
        LuthierError: it fails or times out.
    """
    printed = run([*COMMAND, *arguments], error=LuthierError, timeout=PATIENCE)
    report: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return report
