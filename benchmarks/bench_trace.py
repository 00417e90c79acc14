"""Traces larger than memory: summaries of a run directory's trace, as `luthier report` and as Dask's workers make them.

`LUTHIER_TRACE_BYTES` is the size of the trace on disk (50,000,000); the figures in README.md are of 1,000,000,000.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from run import Row

EXAMPLE = Path(__file__).parents[1] / "examples/large_trace"
REPORT = (sys.executable, "-c", "import sys; from luthier.cli.main import main; sys.exit(main())", "report")
QUESTIONS = {
    "by kernel and instruction, bytes added up": ("--by", "kernel+pc", "--sum", "size"),
    "by page": ("--by", "address/4096"),
}


def measure() -> Iterable[Row]:
    """Measure the CPU time of each question, and memory."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "trace"
        size = os.environ.get("LUTHIER_TRACE_BYTES", "50_000_000").replace("_", "")
        made = subprocess.run(
            [sys.executable, EXAMPLE / "make_trace.py", run, size], check=True, capture_output=True, text=True
        )
        yield Row("records", float(made.stdout.split()[0]), "records")
        yield Row("on disk", (run / "trace-accesses.parquet").stat().st_size / 1e6, "MB")
        for what, question in QUESTIONS.items():
            cpu, peak, _ = _run([*REPORT, str(run), "--trace", "accesses", *question, "--top", "10"])
            yield Row(f"luthier report, {what}", cpu, "s CPU")
            yield Row("  peak memory", peak, "MB")
        if importlib.util.find_spec("distributed") is None:
            return  # pip install luthier[cluster]
        began = time.perf_counter()
        cpu, _, output = _run([sys.executable, str(EXAMPLE / "on_workers.py"), str(run)])
        yield Row("Dask, four workers of 500 MB, accesses by line", cpu, "s CPU")
        yield Row("  in all", time.perf_counter() - began, "s")
        yield Row("  peak memory of a worker", float(output.split()[3]), "MB")


def _run(command: list[str]) -> tuple[float, float, str]:
    """Run a program, and return its CPU time, peak memory and last words.

    CPU time is in seconds, with that of what it started; memory is in MB; the words are those on standard error.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        output = process.stderr.read().strip()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{output}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, used.ru_maxrss / 1000, output.splitlines()[-1] if output else ""
