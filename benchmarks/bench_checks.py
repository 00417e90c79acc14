"""Checks of waits and hazards: of all paths, instructions a second; while a kernel runs, wave-instructions a second,
against launches without checks."""

from __future__ import annotations

import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
from bench_emulator import build, on_device, straight_line
from luthier.devices import open_device
from luthier.emulator import CheckWarning
from luthier.hazards.wait_counters import check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.objects import load_object
from run import Row

from luthier_build.toolchain import Toolchain

UNIT = "M wave-instructions/s"
ALL_PATHS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
LEVELS = ("-O0", "-O1", "-O2", "-O3")
KERNELS = Path(__file__).resolve().parents[1] / "tests" / "emulator" / "kernels"
CHECKS = ("waits", "hazards", "waits+hazards")


def speeds(
    target: str, path: Path, kernel: str, arguments: tuple[object, ...], checks: str, sizes: Mapping[str, int]
) -> tuple[float, float]:
    """Return wave-instructions per second of CPU time on one thread: of the best of five launches, and of the first.

    All instructions are new to the check in the first; what is only compilation is done before.
    """
    device = open_device(f"emu:{target}", threads=1, check=checks.split("+") if checks else None)
    handle = device.load(path).kernel(kernel)
    given = [on_device(device, argument) for argument in arguments]
    seconds = []
    for _ in range(5):
        began = time.process_time()
        stats = handle.launch(*given, **sizes)
        seconds.append(time.process_time() - began)
    return stats.instructions / min(seconds), stats.instructions / seconds[0]


def all_paths(levels: Iterable[str], folder: Path) -> tuple[int, float, float]:
    """Run both checks over the HIP of the tests for `ALL_PATHS`.

    The result is the number of instructions, the seconds of CPU time with lifting, and those of the checks alone.
    """
    toolchain = Toolchain.find()
    instructions, lifting, checking = 0, 0.0, 0.0
    for target, level, name in product(ALL_PATHS, levels, ("plain", "groups")):
        output = folder / f"{name}{level}-{target}.o"
        flags = ["--offload-device-only", "--no-gpu-bundle-output", "-ffp-contract=off", "-w", level]
        command = [toolchain.clang, *toolchain.device_flags(target), *flags, KERNELS / f"{name}.hip", "-o", output]
        subprocess.run([str(word) for word in command], check=True)
        began = time.process_time()
        object = load_object(output)
        lifting += time.process_time() - began
        for kernel in object.kernels:
            times = [time.process_time()]
            lifted = lift(object, kernel)
            times.append(time.process_time())
            instructions += check_waits(lifted).instructions
            check_hazards(lifted)
            times.append(time.process_time())
            lifting += times[1] - times[0]
            checking += times[2] - times[1]
    return instructions, lifting + checking, checking


def measure() -> Iterable[Row]:
    """Measure all paths, at all levels and at -O3 alone, and single kernels.

    These are straight vector code, a kernel with LDS and barriers, and the device library's functions.
    """
    with tempfile.TemporaryDirectory() as name:
        for levels in (LEVELS, LEVELS[-1:]):
            instructions, whole, checking = all_paths(levels, Path(name))
            what = f"all paths, {' '.join(levels)}"
            yield Row(f"{what}, lifting included", instructions / whole / 1e3, "k instructions/s")
            yield Row(what, instructions / checking / 1e3, "k instructions/s")
    n = 1 << 18
    random = np.random.default_rng(0)
    bits = [random.integers(0, 1 << 32, 1 << 15, dtype=np.uint32) for _ in range(2)]
    warnings.simplefilter("ignore", CheckWarning)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for target in ("gfx942", "gfx1100", "gfx1201"):
            work = {
                "straight": (straight_line(target, folder), (), {"grid": 4, "block": 64}),
                "reduction": (
                    build("groups", target, folder),
                    (random.random(n, np.float32), np.zeros(n // 256, np.float32), n),
                    {"grid": n // 256, "block": 256},
                ),
                "single_precision": (
                    build("mathematics", target, folder),
                    (*bits, np.zeros(1 << 21, np.uint32)),
                    {"grid": 64, "block": 256},
                ),
            }
            for kernel, (path, arguments, sizes) in work.items():
                off, _ = speeds(target, path, kernel, arguments, "", sizes)
                for checks in CHECKS:
                    best, first = speeds(target, path, kernel, arguments, checks, sizes)
                    yield Row(f"{target} {kernel}, {checks}", best / 1e6, UNIT, "no check", off / 1e6)
                    yield Row(f"{target} {kernel}, {checks}, first launch", first / 1e6, UNIT)
