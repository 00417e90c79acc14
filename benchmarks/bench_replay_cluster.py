"""`luthier replay --scheduler`: captures a second, by one process and by workers of a Dask cluster, some of which are
killed.

CPU time is that of all processes that replay: the clusters' workers and what they start.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster
from luthier.replay.cluster import outcomes_on
from luthier.replay.jobs import ReplayOutcome
from luthier.replay.launches import Replay
from luthier.replay.processes import replayed_elsewhere
from luthier.replay.server import end_servers
from run import Row

SOURCE = Path(__file__).with_name("sanitize_program.hip")
MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
TARGET = "gfx90a"
CAPTURES = int(os.environ.get("LUTHIER_BENCH_CAPTURES", "100"))
KERNELS = ("add", "count")
PAUSE = 8.0
"""Seconds between two workers that are killed: one takes some to start."""


def _captures(folder: Path) -> list[Path]:
    """Return captures of two programs, over and over."""
    program = folder / "program"
    command = ["hipcc", f"--offload-arch={TARGET}", "-O2", "-w", str(SOURCE), "-o", str(program)]
    subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
    made: list[Path] = []
    for kernel in KERNELS:
        kept = folder / kernel
        argv = [sys.executable, "-c", MAIN, "capture", "--device", f"emu:{TARGET}", "-o", str(kept), "--"]
        subprocess.run([*argv, str(program), kernel, "4096", "2"], check=True, capture_output=True)
        made += sorted(kept.iterdir())
    many = folder / "many"
    many.mkdir()
    return [Path(shutil.copy(made[number % len(made)], many / f"{number:04}.lcap")) for number in range(CAPTURES)]


def _stable(row: ReplayOutcome) -> dict[str, Any]:
    """Return an outcome without its times."""
    return {name: value for name, value in row.to_json().items() if name != "seconds"}


def _cpu_seconds() -> float:
    """Return the CPU time of this process's children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _killing(client: Client, killed: list[int]) -> Iterator[None]:
    """Kill a worker, chosen at random, now and then; have new ones where Dask gave up to start one again."""
    over = threading.Event()
    chosen = random.Random(11)
    count = len(client.nthreads())

    def kill() -> None:
        while not over.wait(PAUSE):
            client.cluster.scale(count)
            pids = sorted((client.run(os.getpid, on_error="ignore") or {}).values())
            if pids:
                with suppress(ProcessLookupError):
                    killed.append(chosen.choice(pids))
                    os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()


def _by_workers(paths: list[Path], count: int, killed: list[int] | None = None) -> tuple[list[ReplayOutcome], float]:
    """Return the rows of a cluster with a number of workers, and its seconds."""
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0", silence_logs=60) as cluster,
        Client(cluster) as client,
        Client(cluster) as other,
    ):
        began = time.perf_counter()
        if killed is None:
            rows = list(outcomes_on(client, paths, Replay()))
        else:
            with _killing(other, killed):
                rows = list(outcomes_on(client, paths, Replay()))
        return rows, time.perf_counter() - began


def measure() -> Iterable[Row]:
    """Yield the rows; the peer is one process after the other."""
    with tempfile.TemporaryDirectory() as name:
        paths = _captures(Path(name))
        before, began = _cpu_seconds(), time.perf_counter()
        truth = [_stable(replayed_elsewhere(Replay(file=str(path), threads=1))) for path in paths]
        end_servers()
        serial = len(paths) / (time.perf_counter() - began)
        cpu = (_cpu_seconds() - before) / len(paths)
        assert {row["what"] for row in truth} == {"equal"}
        yield Row("one after the other", serial, "captures/s")
        yield Row("one after the other, CPU time of a capture", cpu, "s")
        for count in (1, 2, 4):
            before = _cpu_seconds()
            rows, took = _by_workers(paths, count)
            used = (_cpu_seconds() - before) / len(paths)
            assert [_stable(row) for row in rows] == truth
            yield Row(f"{count} workers", len(paths) / took, "captures/s", "one after the other", serial)
            yield Row(f"{count} workers, CPU time of a capture", used, "s", "one after the other", cpu)
        killed: list[int] = []
        rows, took = _by_workers(paths, 4, killed)
        lost = sum(_stable(row) != true for row, true in zip(rows, truth, strict=True))
        yield Row("4 workers, of which some are killed", len(paths) / took, "captures/s", "one after the other", serial)
        yield Row("workers killed", len(killed), "")
        yield Row("captures lost, or with other results than one after the other", lost, "")
