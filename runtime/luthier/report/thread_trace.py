"""Stalls that a thread trace measured, instruction by instruction, beside how often a run counted each instruction.

Format: ``stats_*.csv`` of rocprofv3 ``--att`` (rocprof-trace-decoder): a row ``; SYMBOL`` at each kernel's address,
then a row for each instruction, with cycles summed over the traced waves.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.report.rows import KernelNumbers, by_kernel
from luthier.run.folder import RunFolder
from luthier.support.table import Cell, Table

COLUMNS = frozenset(("Vaddr", "Instruction", "Hitcount", "Latency", "Stall", "Idle"))


class TracedInstruction(Struct):
    """An instruction of a thread trace; cycles are sums over its hits."""

    kernel: str
    address: int
    text: str
    hits: int
    latency: int
    stall: int
    idle: int
    source: str


class CountedInstruction(Struct):
    """An instruction of a run."""

    mnemonic: str
    executions: int | None


def is_thread_trace(path: Path) -> bool:
    """Return whether a file has the columns of a thread trace's instructions.

    Raises:
        LuthierError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            header = file.readline(1 << 12)
    except OSError as problem:
        raise LuthierError(f"cannot read {path}: {problem.strerror or problem}") from None
    return {name.strip('"') for name in header.decode("utf-8", "replace").strip().split(",")} >= COLUMNS


def read_thread_trace(path: Path) -> list[TracedInstruction]:
    """Return the instructions of a trace in the file's order.

    Raises:
        LuthierError: the file cannot be read, or has another format.
    """
    rows: list[TracedInstruction] = []
    kernel = ""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                text = row["Instruction"]
                if text.startswith("; "):
                    kernel = text[2:].removesuffix(".kd")
                    continue
                hits, latency, stall, idle = (int(row[name]) for name in ("Hitcount", "Latency", "Stall", "Idle"))
                source = row.get("Source") or ""
                rows.append(TracedInstruction(kernel, int(row["Vaddr"]), text, hits, latency, stall, idle, source))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as problem:
        raise LuthierError(f"cannot read the thread trace {path}: {problem}") from None
    if not rows:
        raise LuthierError(f"the thread trace {path} has no instructions")
    return rows


def stalls_beside_counts(run: RunFolder, paths: Iterable[Path], top: int) -> Table:
    """Return the instructions that stalled longest, with how often the run counted them.

    ``note`` says where the run has another instruction at that address, or did not count the kernel.

    Args:
        top: the most rows; 0: all.

    Raises:
        LuthierError: a file cannot be read, or a table of the run is damaged.
    """
    traced = [instruction for path in paths for instruction in read_thread_trace(path)]
    counted = _counted(run)
    stalled = sum(instruction.stall for instruction in traced)
    traced.sort(key=lambda instruction: -instruction.stall)
    rows = [_row(instruction, counted, stalled) for instruction in traced[: top or None]]
    columns = ("kernel", "address", "instruction", "source", "counted", "traced", "latency", "stall", "stall %", "note")
    return Table("thread trace: cycles of each hit", columns, rows)


def _row(
    instruction: TracedInstruction, counted: dict[str, dict[int, CountedInstruction]], stalled: int
) -> Sequence[Cell]:
    kernel = counted.get(instruction.kernel)
    known = kernel.get(instruction.address) if kernel else None
    note, executions = "", None
    if kernel is None:
        note = "the run did not count this kernel"
    elif known is None or known.mnemonic != instruction.text.partition(" ")[0]:
        note = f"another build: the run has {known.mnemonic if known else 'no instruction'} there"
    else:
        executions = known.executions
    hits = max(instruction.hits, 1)
    cycles = round(instruction.latency / hits, 1), round(instruction.stall / hits, 1)
    share = round(100 * instruction.stall / stalled, 1) if stalled else 0.0
    place = instruction.kernel, hex(instruction.address), instruction.text, instruction.source
    return (*place, executions, instruction.hits, *cycles, share, note)


def _counted(run: RunFolder) -> dict[str, dict[int, CountedInstruction]]:
    """Return the instructions that a run counted, by symbol of the kernel and address."""
    numbers = KernelNumbers()
    symbols = {
        numbers.of(row["kernel"], row["digest"]): row["kernel"] for row in run.rows("kernels", ["kernel", "digest"])
    }
    kernels: dict[str, dict[int, CountedInstruction]] = {}
    for number, rows in by_kernel(run, "counts", ("address", "mnemonic", "executions"), numbers, symbols):
        instructions = kernels.setdefault(symbols[number] or "", {})
        for address, mnemonic, executions in zip(*rows.values(), strict=True):
            known = instructions.setdefault(address, CountedInstruction(mnemonic or "", None))
            if executions is not None:
                known.executions = (known.executions or 0) + executions
    return kernels
