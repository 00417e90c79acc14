"""`luthier replay --split`: one launch, whole and in ranges of work-groups on workers that have a core each.

A worker with a core represents a machine. There are at most as many workers as cores; times for more workers follow
from the CPU time of the parts, which is printed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster
from run import Row

SOURCE = Path(__file__).with_name("sanitize_program.hip")
MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
TARGET = "gfx90a"
FLOATS = os.environ.get("LUTHIER_BENCH_SPLIT", str(1 << 20))
"""Four times those of a matrix."""
PARTS = 8


def _captured(folder: Path) -> Path:
    """Return a capture of a product of matrices: its work-groups write apart from each other."""
    program, kept = folder / "program", folder / "kept"
    command = ["hipcc", f"--offload-arch={TARGET}", "-O2", "-w", str(SOURCE), "-o", str(program)]
    subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
    argv = [sys.executable, "-c", MAIN, "capture", "--device", f"emu:{TARGET}", "-o", str(kept), "--"]
    subprocess.run([*argv, str(program), "multiply", FLOATS, "0"], check=True, capture_output=True)
    return next(kept.iterdir())


def _replayed(core: int, *words: str) -> tuple[dict[str, Any], float, float]:
    """Return the row of a replay by a command on one core, the seconds in it, and the CPU time of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [_taskset(), "-c", str(core), sys.executable, "-c", MAIN, "replay", "--json", *words]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    (row,) = json.loads(done.stdout)
    assert row["what"] == "equal", row
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return row, row["seconds"], after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _taskset() -> str:
    program = shutil.which("taskset")
    assert program, "taskset is not installed (util-linux)"
    return program


@contextmanager
def _workers(cores: list[int]) -> Iterator[str]:
    """Return the scheduler of workers with a thread each, on these cores."""
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=60) as cluster,
        Client(cluster) as client,
        ExitStack() as started,
    ):
        for core in cores:
            argv = [_taskset(), "-c", str(core), sys.executable, "-m", "distributed.cli.dask_worker"]
            more = ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
            process = subprocess.Popen(
                [*argv, cluster.scheduler_address, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            started.callback(process.wait)
            started.callback(process.terminate)
        client.wait_for_workers(len(cores), timeout=120)
        yield cluster.scheduler_address


def measure() -> Iterable[Row]:
    """Yield the rows; the peer is the whole launch on one core."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        path = str(_captured(Path(name)))
        whole, serial, used = _replayed(cores[0], path)
        yield Row(f"whole, one core, {whole['instructions']:,} instructions", serial, "s")
        *_, noted = _replayed(cores[0], path, "--split", str(PARTS))
        yield Row(f"{PARTS} parts one after the other, CPU time", noted, "s", "whole", used)
        for count in range(1, len(cores) + 1):
            with _workers(cores[:count]) as scheduler:
                row, took, _ = _replayed(cores[0], path, "--split", str(PARTS), "--scheduler", scheduler)
            assert row["instructions"] == whole["instructions"]
            yield Row(f"{PARTS} parts, {count} workers with a core each", took, "s", "whole", serial)
            yield Row(
                f"{PARTS} parts, {count} workers: the longest part", max(row["part_seconds"]), "s", "whole", serial
            )
            yield Row(f"{PARTS} parts, {count} workers: all parts", sum(row["part_seconds"]), "s", "whole", serial)
