"""Unmodified programs under `luthier run`: start-up, launches, a long kernel against the emulated device in Python."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from luthier.devices import open_device
from luthier.tool import find_entry_points
from run import Row

SOURCE = Path(__file__).with_name("run_program.hip")
MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
_COLD = (
    """
import sys
from pathlib import Path
from luthier.cache.store import Store
from luthier.run import patching
path = Path(sys.argv.pop(1)) / "patched.sqlite"
patching.patched_store = lambda: Store(path)
"""
    + MAIN
)
TURNS = 3_000_000


def _under_luthier(*command: str, options: Sequence[str] = ()) -> str:
    argv = [sys.executable, "-c", MAIN, "run", *options, "--", *command]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def _numbers(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(\w+) ([\d.]+)$", text, re.MULTILINE)}


def _in_process(program: Path) -> float:
    """Return the seconds of CPU time of the long kernel on an `EmulatedDevice`."""
    module = open_device("emu:gfx90a").load(program)
    kernel = module.kernel(next(name for name in module.object.kernels if "long_kernel" in name))
    out = np.zeros(2048, np.float32)
    kernel.launch(out, 10, grid=8, block=256)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    kernel.launch(out, TURNS, grid=8, block=256)
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before


def _tools(program: str, plain: float) -> Iterable[Row]:
    """Measure the cost of a tool that instruments nothing, and the time that a warm cache saves.

    There are no rows if the tool is not installed.

    Args:
        plain: microseconds of a launch without tools.
    """
    if "instr_count" not in find_entry_points():
        return
    nothing = ["-t", "instr_count", "--kernel", "no kernel", "--allow-nothing"]
    with tempfile.TemporaryDirectory() as folder:
        for number, what in enumerate(("", ", recorded and timed (-o)")):
            queued = []
            for turn in range(3):
                options = [*nothing, *(["-o", f"{folder}/{turn}"] if number else [])]
                queued.append(_numbers(_under_luthier(program, "launches", options=options))["queued"])
            more = max(min(queued) - plain, 0.0)
            yield Row(f"a launch more, with the tool library and nothing instrumented{what}", more, "us")
    with tempfile.TemporaryDirectory() as folder:
        for what in ("cold", "warm"):
            results = Path(folder) / "results.json"
            began = time.perf_counter()
            argv = [sys.executable, "-c", _COLD, folder, "run", "-t", "instr_count", "--json", str(results), "--"]
            subprocess.run([*argv, program, "short"], check=True, capture_output=True)
            took = time.perf_counter() - began
            kernels = json.loads(results.read_text())["kernels"]
            patched = sum(not kernel["skipped"] and not kernel["from_cache"] for kernel in kernels)
            yield Row(f"that program under instr_count, {what} cache of patched kernels, {patched} patched", took, "s")


def _projected(program: str, words: Sequence[str]) -> Row:
    """Measure the CPU time of a program whose launches are projected beside that of one whose launches are not."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(3):
        for project, each in seconds.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            _under_luthier(program, *words, options=["--project"] if project else [])
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            each.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    what = f"CPU time of a program ({words[0]}) with --project, from start to end"
    return Row(what, min(seconds[True]), "s", "without", min(seconds[False]))


def measure() -> Iterable[Row]:
    """Yield the rows."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        command = ["hipcc", "--offload-arch=gfx90a", "-O2", "-std=c++17", "-w", str(SOURCE), "-o", str(program)]
        subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
        _under_luthier(str(program), "short")  # operations are compiled once for a machine
        began = time.perf_counter()
        _under_luthier("true")
        yield Row("luthier run true", time.perf_counter() - began, "s")
        began = time.perf_counter()
        _under_luthier(str(program), "short")
        yield Row("a program with one small kernel, from start to end", time.perf_counter() - began, "s")
        times = [_numbers(_under_luthier(str(program), "launches")) for _ in range(3)]
        for name, what in (
            ("synchronous", "launch of an empty kernel and hipDeviceSynchronize"),
            ("queued", "launch of an empty kernel, 2000 in a row"),
            ("start", "from hipLaunchKernel to the first instruction"),
        ):
            yield Row(what, min(row[name] for row in times), "us")
        for words in (["launches"], ["different"], ["long", str(TURNS)]):
            yield _projected(str(program), words)
        yield from _tools(str(program), min(row["queued"] for row in times))
        ours = min(_numbers(_under_luthier(str(program), "long", str(TURNS)))["cpu"] for _ in range(3))
        theirs = min(_in_process(program) for _ in range(3))
        yield Row("a long kernel: CPU time of the threads that execute", ours, "s", "in Python's process", theirs)
