"""Steps with a program of its own process: under the real ROCm on a virtual device, and on a GPU."""

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
    """Return the steps on the virtual device ``emu:TARGET``."""
    where = f"{name}, ROCr"
    return [
        SelftestStep(where, "libraries", lambda: libraries(name)),
        SelftestStep(where, "program", lambda: ran(name, "program")),
        SelftestStep(where, "counters", lambda: ran(name, "counting")),
        SelftestStep(where, "hooks", lambda: ran(name, "hooked")),
    ]


def libraries(name: str) -> str:
    """Return the libraries needed to run programs on a virtual device."""
    try:
        parse_devices(name)
    except LuthierError as problem:
        raise Skip(str(problem)) from None
    found = {library: rocm.find(library) for library in (rocm.ROCR, rocm.HIP)}
    missing = [library for library, there in found.items() if there is None]
    if missing:
        raise Skip(f"programs need ROCm: there is no {' and no '.join(missing)}")
    rocr, hip = found.values()
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
    """Run a program that is not aware of Luthier; return its result, and how many instructions were counted.

    Args:
        name: name of the device.
        what: as `luthier_build.selftest.apart` has it.
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
        found = apart(what, name, *command, *map(str, sizes))
        check(found["code"] == 0, f"the program ended with {found['code']}")
        devices.compare(np.frombuffer(out.read_bytes(), np.uint32))
    if what == "program":
        check(found["counted"] > 0, "the device executed nothing")
        return "result as computed by NumPy"
    check(not found["faults"], "; ".join(found["faults"]))
    check(found["instrumented"].get(kernel.NAME) == 1, f"the kernel was not instrumented: {found['instrumented']}")
    beside = luthier.open_device(name)
    devices.launch(beside, kernel.code_object(target).data)
    wanted = beside.stats.instructions
    check(found["counted"] == wanted, f"{found['counted']} instructions counted; the emulated device executes {wanted}")
    return f"{wanted} instructions counted, as many as the emulated device executes; result as without"


def gpu(name: str, *, asked: bool) -> list[SelftestStep]:
    """Return the step on ``hip:N``, in a process of its own: a kernel that faults there ends it.

    Args:
        asked: the user has named it: that there is none is a failure.
    """

    def try_it() -> str:
        try:
            found = apart("gpu", name)
        except LuthierError as problem:
            if asked or _has_gpu():
                raise
            raise Skip(f"no GPU to be used: {str(problem).splitlines()[-1]}") from None
        return f"{found['device']}: {found['detail']}"

    return [SelftestStep(name, "counters", try_it)]


def apart(*arguments: str) -> dict[str, Any]:
    """Run `luthier_build.selftest.apart`; what it has found.

    Raises:
        LuthierError: it fails, or does not end.
    """
    command = [sys.executable, "-m", "luthier_build.selftest.apart", *arguments]
    printed = run(command, error=LuthierError, timeout=_PATIENCE)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def _has_gpu() -> bool:
    return Path("/dev/kfd").exists()
