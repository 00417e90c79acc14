"""`luthier sanitize`: what its checks cost, as CPU time of the threads that execute kernels without a bug."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from run import Row

SOURCE = Path(__file__).with_name("sanitize_program.hip")
MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
TARGETS = ("gfx90a", "gfx1030")
KERNELS = {
    "add": ("vector add: memory", 1 << 20, 10),
    "multiply": ("product of matrices: LDS, barriers", 1 << 16, 4),
    "count": ("histogram: atomics", 1 << 20, 4),
}
"""What each is, numbers, launches."""
CHECKS = ("memory", "race", "init", "barrier", "memory,race,init,barrier", "waits", "hazards", "fp")


def _seconds(program: Path, kernel: str, target: str, *options: str) -> float:
    """Return the CPU time of the kernels of a program, the best of three runs."""
    _, numbers, turns = KERNELS[kernel]
    argv = [sys.executable, "-c", MAIN, *options, "--device", f"emu:{target}", "--", str(program), kernel]
    argv += [str(numbers), str(turns)]
    runs = [subprocess.run(argv, check=True, capture_output=True, text=True).stdout for _ in range(3)]
    return min(map(float, runs))


def measure() -> Iterable[Row]:
    """Yield the rows; the peer is the same program under `luthier run`."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        offload = [f"--offload-arch={target}" for target in TARGETS]
        command = ["hipcc", *offload, "-O2", "-w", str(SOURCE), "-o", str(program)]
        subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
        for target in TARGETS:
            for kernel, (what, *_) in KERNELS.items():
                plain = _seconds(program, kernel, target, "run")
                for checks in CHECKS:
                    took = _seconds(program, kernel, target, "sanitize", "--checks", checks)
                    yield Row(f"{target} {what}, {checks}", took, "s", "without", plain)
