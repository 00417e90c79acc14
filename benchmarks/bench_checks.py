"""Checks of waits and hazards while a kernel runs: wave-instructions a second, against launches without checks."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from bench_emulator import build, on_device, straight_line
from luthier.devices import open_device
from luthier.emulator import CheckWarning
from run import Row

UNIT = "M wave-instructions/s"
CHECKS = ("waits", "hazards", "waits+hazards")


def speeds(
    target: str, path: Path, kernel: str, arguments: tuple[object, ...], checks: str, sizes: Mapping[str, int]
) -> tuple[float, float]:
    """Wave-instructions a second of CPU time on one thread, of the best of five launches and of the first, whose
    instructions are all new to the check; what only compiles is done before."""
    device = open_device(f"emu:{target}", threads=1, check=checks.split("+") if checks else None)
    handle = device.load(path).kernel(kernel)
    given = [on_device(device, argument) for argument in arguments]
    seconds = []
    for _ in range(5):
        began = time.process_time()
        stats = handle.launch(*given, **sizes)
        seconds.append(time.process_time() - began)
    return stats.instructions / min(seconds), stats.instructions / seconds[0]


def measure() -> Iterable[Row]:
    """Straight vector code, a kernel with LDS and barriers, and the device library's functions."""
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
