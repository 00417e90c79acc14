"""Steps on a GPU of the machine, each in a separate process: if a kernel faults, HIP ends the process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path

import numpy as np
from luthier.errors import LuthierError
from luthier.isa.targets import TargetId
from luthier.report.measured import read_measured
from luthier.run import preflight
from luthier.support.processes import run

from luthier_build.compile import compile_application
from luthier_build.selftest import devices, kernel
from luthier_build.selftest.launches import LAUNCHES, SOURCE
from luthier_build.selftest.programs import PATIENCE, apart, emulated_stats, libraries, program_command, ran
from luthier_build.selftest.steps import SelftestStep, Skip, check
from luthier_build.selftest.tools import hook_bundle, toolchain

ALL = "hip"
_OBJECT_VERSION = 4
"""Version of code objects that HIP of every release since ROCm 4.1 loads."""
_PROFILER = "rocprofv3"
_COUNTERS = ("SQ_WAVES", "SQ_INSTS_VALU", "SQ_INSTS_SALU", "SQ_INSTS_SMEM")


def steps_on(name: str, *, is_optional: bool) -> Iterator[SelftestStep]:
    """Yield the steps for ``hip:N``, or ``hip`` for all GPUs.

    Args:
        is_optional: a missing GPU is a skipped step instead of a failed one.
    """
    try:
        gpus = gpus_of(name)
    except LuthierError as problem:
        yield SelftestStep(name, "device", _failing(problem, is_optional=is_optional))
        return
    for gpu, facts in gpus.items():
        yield from steps_of(gpu, facts)


def _failing(problem: LuthierError, *, is_optional: bool) -> Callable[[], str]:
    def fail() -> str:
        if is_optional and not os.path.exists(preflight.DRIVER):
            raise Skip(f"no usable GPU: {str(problem).splitlines()[-1]}")
        raise problem

    return fail


@cache
def gpus_of(name: str) -> dict[str, dict[str, str]]:
    """Return facts about each GPU, by its name."""
    preflight.check_driver(os.environ)
    gpus = apart("gpus", *([] if name == ALL else [name]))
    check(bool(gpus), "HIP finds no device")
    return gpus


def steps_of(name: str, facts: dict[str, str]) -> Iterator[SelftestStep]:
    """Yield the steps for a GPU.

    Args:
        name: ``hip:N``.
        facts: its ``target``, or the ``error`` that opening it gives.
    """
    if "error" in facts:
        yield SelftestStep(name, "device", _failing(LuthierError(facts["error"]), is_optional=False))
        return
    target = TargetId.parse(facts["target"]).target.name
    yield SelftestStep(name, "device", lambda: f"{facts['target']}, {libraries(name)}")
    for chosen in LAUNCHES:
        yield SelftestStep(name, f"kernel {chosen}", partial(_kernel, name, target, chosen))
    yield SelftestStep(name, "program, counters", lambda: ran(name, "counting", target))
    yield SelftestStep(name, "program, hooks", lambda: ran(name, "hooked", target))
    yield SelftestStep(name, _PROFILER, lambda: _profiled(name, target))


def _kernel(name: str, target: str, chosen: str) -> str:
    """Launch a kernel, unchanged and under tools, on a GPU and on the emulated device; both must agree."""
    files = Path(_files(target).name)
    if LAUNCHES[chosen].is_compiled and not (files / "compiled").exists():
        toolchain("kernels")  # raises if there is none
        raise LuthierError((files / "problem").read_text())
    object = files / ("compiled" if LAUNCHES[chosen].is_compiled else "assembled")
    modules = [str(path) for path in (files / "hooks",) if path.exists()]
    try:
        report = apart("kernel", name, str(object), chosen, *modules)
    except LuthierError as problem:
        *rest, reason = str(problem).splitlines()
        launch = [line for line in rest if line.startswith("kernel ")][-1:]
        raise LuthierError("\n".join([*rest, ": ".join([*launch, reason])])) from None
    return str(report["detail"]) + ("" if modules else "; hooks were not tried: there is no compiler")


@cache
def _files(target: str) -> tempfile.TemporaryDirectory[str]:
    """Return a folder with the kernels' code objects and, if there is a compiler, the module with hooks."""
    files = tempfile.TemporaryDirectory(prefix="luthier-selftest-")
    folder = Path(files.name)
    (folder / "assembled").write_bytes(kernel.code_object(target).data)
    with suppress(Skip), _recording(folder / "problem"):
        flags = [f"-mcode-object-version={_OBJECT_VERSION}"]
        compile_application(SOURCE, target, folder / "compiled", flags=flags, toolchain=toolchain("kernels"))
        (folder / "hooks").write_bytes(hook_bundle(target, folder).read_bytes())
    return files


@contextmanager
def _recording(path: Path) -> Iterator[None]:
    """Write the message of a `LuthierError` to a file; the error ends here."""
    try:
        yield
    except LuthierError as problem:
        path.write_text(str(problem))


def _profiled(name: str, target: str) -> str:
    """Count instructions of the kernel by the GPU's performance counters; the emulated device must count as many."""
    profiler = shutil.which(_PROFILER)
    if profiler is None:
        raise Skip(f"{_PROFILER} is not installed")
    libraries(name)
    with tempfile.TemporaryDirectory(prefix="luthier-selftest-") as folder:
        command = [profiler, "--pmc", *_COUNTERS, "--output-format", "csv", "-d", folder, "--"]
        out = Path(folder) / "out"
        number, seen = int(name.partition(":")[2]), os.environ.get("HIP_VISIBLE_DEVICES", "")
        env = {**os.environ, "HIP_VISIBLE_DEVICES": seen.split(",")[number] if seen else str(number)}
        run([*command, *program_command(target, Path(folder), out)], env=env, error=LuthierError, timeout=PATIENCE)
        devices.compare(np.frombuffer(out.read_bytes(), np.uint32))
        files = sorted(Path(folder).rglob("*counter_collection.csv"))
        check(bool(files), f"{_PROFILER} wrote no counters")
        launches = [launch for file in files for launch in read_measured(file) if launch.kernel == kernel.NAME]
    check(len(launches) == 1, f"{_PROFILER} wrote counters of {len(launches)} launches of {kernel.NAME}, not of 1")
    (measured,) = launches
    counted = devices.sq_counters(emulated_stats(target))
    wrong = [
        f"{counter}: {measured.counters[counter]:g}, on the emulated device {counted[counter]}"
        for counter in _COUNTERS
        if measured.counters.get(counter) != counted[counter]
    ]
    check(not wrong, "; ".join(wrong))
    return f"{', '.join(_COUNTERS)}: as on the emulated device"
