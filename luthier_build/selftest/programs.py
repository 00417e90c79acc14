"""Steps in a separate process: a program under the real ROCm on a virtual device, and a GPU."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import luthier
import numpy as np
from luthier.errors import LuthierError
from luthier.run import parse_devices, preflight
from luthier.run.program import library_folder
from luthier.support.processes import run

from luthier_build import rocm
from luthier_build.selftest import devices, kernel
from luthier_build.selftest import program as hip_program
from luthier_build.selftest.steps import SelftestStep, Skip, check
from luthier_build.selftest.tools import compile_hook

_PATIENCE = 300
"""Seconds."""


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
        parse_devices(name)
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
    base = {**os.environ, "LD_LIBRARY_PATH": str(rocr.path.parent)}
    if unknown := preflight.unknown_targets(sys.executable, parse_devices(name), base):
        raise Skip(unknown)
    return f"ROCr {rocr.version}, HIP {hip.version}"


def ran(name: str, what: str) -> str:
    """Run a HIP program and return a description of its result and of the instruction count.

    Args:
        name: name of the device.
        what: ``program``, ``counting`` or ``hooked``, see `luthier_build.selftest.apart`.
    """
    libraries(name)
    target = name.partition(":")[2]
    if what == "hooked":
        compile_hook(target)
    hip = rocm.find(rocm.HIP)
    assert hip is not None
    with tempfile.TemporaryDirectory(prefix="luthier-selftest-") as folder:
        object, out = Path(folder) / "object", Path(folder) / "out"
        object.write_bytes(kernel.code_object(target).data)
        sizes = (kernel.ITEMS, kernel.GROUPS, kernel.ITEMS, kernel.TURNS)
        command = [sys.executable, hip_program.__file__, str(hip.path), str(object), kernel.NAME, str(out)]
        report = apart(what, name, *command, *map(str, sizes))
        check(report["code"] == 0, f"the program's exit code is {report['code']}")
        devices.compare(np.frombuffer(out.read_bytes(), np.uint32))
    if what == "program":
        check(report["counted"] > 0, "the device executed nothing")
        return "result as computed by NumPy"
    check(not report["faults"], "; ".join(report["faults"]))
    check(report["instrumented"].get(kernel.NAME) == 1, f"the kernel was not instrumented: {report['instrumented']}")
    beside = luthier.open_device(name)
    devices.launch(beside, kernel.code_object(target).data)
    wanted = beside.stats.instructions
    counted = report["counted"]
    check(counted == wanted, f"{counted} instructions counted; the emulated device executes {wanted}")
    return f"{wanted} instructions counted, as many as the emulated device executes; result unchanged"


def gpu(name: str, *, asked: bool) -> list[SelftestStep]:
    """Return the step for ``hip:N``, in a separate process, because a fault of the kernel ends the process.

    Args:
        asked: the user has named the device, so that a missing device is a failure.
    """

    def try_it() -> str:
        try:
            report = apart("gpu", name)
        except LuthierError as problem:
            if asked or _has_gpu():
                raise
            raise Skip(f"no usable GPU: {str(problem).splitlines()[-1]}") from None
        return f"{report['device']}: {report['detail']}"

    return [SelftestStep(name, "counters", try_it)]


def apart(*arguments: str) -> dict[str, Any]:
    """Run `luthier_build.selftest.apart` and return its report.

    Raises:
        LuthierError: it fails or times out.
    """
    command = [sys.executable, "-m", "luthier_build.selftest.apart", *arguments]
    printed = run(command, error=LuthierError, timeout=_PATIENCE)
    report: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return report


def _has_gpu() -> bool:
    return Path("/dev/kfd").exists()
