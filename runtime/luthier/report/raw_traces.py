"""Tables of thread traces as the hardware writes them (``.att`` files of rocprofv3)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from luthier.errors import LuthierError
from luthier.report.sqtt import WORDS, ThreadTrace, WaveTrace
from luthier.support.table import Table

SUFFIX = ".att"
_DEEPEST = 3
"""Limit of the folders between a named one and a trace; rocprofv3 makes one for the host."""


def raw_traces(paths: Sequence[Path]) -> list[Path]:
    """Return the thread traces among files and in folders; [] if a path is neither."""
    files: list[Path] = []
    for path in paths:
        of_path = sorted(_inside(path)) if path.is_dir() else [path] if path.suffix == SUFFIX else []
        if not of_path:
            return []
        files += of_path
    return files


def _inside(folder: Path) -> Iterator[Path]:
    """Yield the thread traces in a folder and in those below it, down to `_DEEPEST`."""
    for path, folders, names in os.walk(folder):
        yield from (Path(path, name) for name in names if name.endswith(SUFFIX))
        if len(Path(path).relative_to(folder).parts) == _DEEPEST:
            folders.clear()


def tables_of_traces(files: Sequence[Path], top: int = 20) -> list[Table]:
    """Return tables of thread traces: one row for each trace, class of instructions, and wave.

    Traces have the names of their files, or paths in the folder that contains all.

    Args:
        top: the most waves, those that took most cycles first; 0: all.

    Raises:
        LuthierError: a file cannot be read, or is no thread trace.
    """
    traces, waves = [], list[tuple[str, int, int, int, int, int, str]]()
    common = os.path.commonpath([os.path.abspath(path.parent) for path in files])
    classes: Counter[str] = Counter()
    for path in files:
        try:
            trace = ThreadTrace(path.read_bytes(), str(path))
        except OSError as problem:
            raise LuthierError(f"cannot read {path}: {problem.strerror or problem}") from problem
        of_trace = list(trace.waves())
        classes.update(step.kind for wave in of_trace for step in wave.steps)
        name = os.path.relpath(path, common)
        waves += (_row(name, wave) for wave in of_trace)
        notes = [
            *([f"the hardware lost tokens {trace.lost} times"] if trace.lost else []),
            *(["ends within a token"] if trace.cut else []),
        ]
        layout = "GFX9" if trace.layout == WORDS else f"version {trace.layout}"
        steps, whole = sum(len(wave.steps) for wave in of_trace), sum(wave.whole for wave in of_trace)
        traces.append((name, layout, len(of_trace), whole, steps, "; ".join(notes)))
    total = classes.total()
    waves.sort(key=lambda row: -row[4])
    shown = waves[: top or None]
    left = f", the {len(shown)} with most cycles of {len(waves)}" if len(shown) < len(waves) else ""
    return [
        Table("thread traces", ("trace", "format", "waves", "whole waves", "instructions", "note"), traces),
        Table(
            "instructions by class",
            ("class", "instructions", "%"),
            [(kind, times, round(100 * times / total, 2)) for kind, times in classes.most_common()],
        ),
        Table(
            f"waves{left}",
            ("trace", "SIMD", "slot", "start cycle", "cycles", "instructions", "note"),
            shown,
        ),
    ]


def _row(name: str, wave: WaveTrace) -> tuple[str, int, int, int, int, int, str]:
    note = "" if wave.whole else "not whole"
    return name, wave.simd, wave.slot, wave.start, _cycles(wave), len(wave.steps), note


def _cycles(wave: WaveTrace) -> int:
    """Return the cycles from the start of a wave to its end or, if that is not in the trace, its last instruction."""
    end = wave.end if wave.end is not None else max((step.time for step in wave.steps), default=wave.start)
    return end - wave.start
