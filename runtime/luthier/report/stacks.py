"""Launches by the host's stack of calls that made them, the program's ranges (roctx), or Python functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from msgspec import Struct

from luthier.errors import LuthierError
from luthier.report import overview
from luthier.report.rows import KernelNumbers, numeric
from luthier.report.shapes import waves_of
from luthier.run import schema
from luthier.run.folder import RunFolder
from luthier.support.extras import extra
from luthier.support.table import Table

By = Literal["stack", "range", "python"]
GROUPS: tuple[str, ...] = get_args(By)
NUMBERS = ("launches", "work-items", "waves", "instructions", "lanes", "time")
"""What can be summed by stack. Instructions and active lanes were counted for each kernel, over all of its launches:
they are divided among its stacks by the waves that these launched. Time is in nanoseconds."""
COUNTED = ("instructions", "lanes")
"""Those of `NUMBERS` that only instrumented launches have."""
_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_STARTS = ("_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3", "__clone3")
"""Functions with which programs and threads begin …"""
_RUNTIMES = ("libc.so", "libc-", "libpthread", "ld-", "libstdc++", "libc++")
"""… like functions without a symbol of these files, if nothing else has called them."""
_UNKNOWN, _OUTER, _NONE = (
    "(unknown)",
    "(outer calls unknown)",
    {"range": "(no range)", "python": "(no Python function)"},
)


class HostFrame(Struct, frozen=True):
    """A call of the host."""

    name: str
    file: str | None = None
    """Source file; None if unknown."""
    line: int = 0
    object: str | None = None
    """Executable or library; None for Python."""
    is_python: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.file.rpartition('/')[2]}:{self.line})" if self.file else self.name


class StackLaunches(Struct):
    """Launches of one kernel from one stack."""

    kernel: int
    """Number in `LaunchStacks.kernels`."""
    frames: tuple[int, ...]
    """Numbers in `LaunchStacks.frames`, outermost first."""
    starts: int
    """Number of the outermost frames with which the C library begins programs and threads."""
    ranges: tuple[str, ...]
    """Outermost first."""
    numbers: dict[str, int | None]
    """Sums by name, of `NUMBERS`; None if not known."""


class LaunchStacks(Struct):
    """All launches of a run by stack and kernel, over all processes."""

    kernels: list[str]
    """Names."""
    frames: list[HostFrame]
    rows: list[StackLaunches]
    is_emulated: bool
    """Whether times are those of an emulated device."""
    known: tuple[str, ...]
    """The `NUMBERS` that are known."""
    launches: int
    counted: int
    """Number of launches whose instructions were counted."""

    @property
    def partial(self) -> str:
        """Return how many launches the numbers of `COUNTED` are of; "" if of all, or if none were counted."""
        return (
            f"{self.counted:,} of {self.launches:,} launches were counted" if 0 < self.counted < self.launches else ""
        )

    @classmethod
    def of(cls, run: RunFolder) -> LaunchStacks:
        """Read a run.

        Raises:
            LuthierError: it has no stacks, or a table is damaged.
        """
        numbers = KernelNumbers()
        return cls.of_kernels(run, numbers, overview.kernels(run, numbers))

    @classmethod
    def of_kernels(cls, run: RunFolder, numbers: KernelNumbers, kernels: Sequence[dict[str, Any]]) -> LaunchStacks:
        """Read a run whose kernels are known, from `luthier.report.overview.kernels`.

        Raises:
            LuthierError: it has no stacks, or a table is damaged.
        """
        if not has_stacks(run):
            raise LuthierError(
                f"{run.path} has no stacks of launches: it was recorded with --no-stacks, or by an early version of "
                "Luthier"
            )
        stacks, frames = _stacks(run)
        emulated = overview.is_emulated(run)
        sums: dict[tuple[Any, ...], list[int]] = {}
        all_waves = [0] * len(kernels)
        every = with_counts = 0
        for (process, stack, kernel, instrumented, *sizes), (launches, timed, time) in _launches(run, numbers).items():
            if kernel >= len(kernels):
                continue
            waves = (waves_of(sizes[:3], sizes[3:], kernels[kernel]["wave_size"]) or 0) * launches
            counted = waves if instrumented else 0
            all_waves[kernel] += counted
            every += launches
            if instrumented and kernels[kernel]["executed"] is not None:
                with_counts += launches
            key = kernel, *stacks.get((process, stack), ((), ()))
            entry = sums.setdefault(key, [0] * 6)
            items = sizes[0] * sizes[1] * sizes[2] * launches
            entry[:] = (
                old + new for old, new in zip(entry, (launches, items, waves, counted, timed, time), strict=True)
            )
        rows = []
        for (kernel, chain, ranges), (launches, items, waves, counted, timed, time) in sums.items():
            about = kernels[kernel]
            shares = {
                name: None
                if not all_waves[kernel] or about[of] is None
                else round(about[of] * counted / all_waves[kernel])
                for name, of in (("instructions", "executed"), ("lanes", "lanes"))
            }
            values = {"launches": launches, "work-items": items, "waves": waves, **shares}
            starts = next((at for at, one in enumerate(chain) if not _is_start(frames[one])), len(chain))
            rows.append(StackLaunches(kernel, chain, starts, ranges, values | {"time": time if timed else None}))
        known = tuple(name for name in NUMBERS if any(row.numbers[name] is not None for row in rows))
        rows.sort(key=lambda row: [-(row.numbers[name] or 0) for name in ("instructions", "waves", "launches")])
        return cls([one["name"] for one in kernels], frames, rows, emulated, known, every, with_counts)

    def path(self, row: StackLaunches, by: By, *, starts: bool = False) -> list[str]:
        """Return the names of the calls, ranges or Python functions that a row belongs to, outermost first.

        Args:
            starts: whether with the C library's functions that begin programs and threads.
        """
        if by == "range":
            return list(row.ranges) or [_NONE[by]]
        frames = [self.frames[number] for number in row.frames]
        if by == "python":
            return [str(frame) for frame in frames if frame.is_python] or [_NONE[by]]
        return [str(frame) for frame in frames[0 if starts else row.starts :]] or [_UNKNOWN]

    def to_json(self) -> dict[str, Any]:
        """Return it as data of the page."""
        return {
            "frames": [[one.name, one.file or one.object or "", one.line] for one in self.frames],
            "python": [int(frame.is_python) for frame in self.frames],
            "known": list(self.known),
            "partial": self.partial,
            "rows": [
                [row.kernel, list(row.frames), row.starts, list(row.ranges), [row.numbers[name] for name in self.known]]
                for row in self.rows
            ],
        }


def has_stacks(run: RunFolder) -> bool:
    """Return whether a run has stacks of launches."""
    names = (schema.STACKS.name, schema.FRAMES.name)
    if not set(names) <= set(run.names):
        return False
    with run.table(schema.STACKS.name) as reader:
        return reader.rows > 0


def by_stack(run: RunFolder, by: By, top: int = 0) -> Table:
    """Return launches by stack, range or Python functions, those with most instructions (else waves) first.

    Args:
        top: number of rows; 0: all.

    Raises:
        LuthierError: the run has no stacks, or a table is damaged.
    """
    stacks = LaunchStacks.of(run)
    groups: dict[str, tuple[dict[str, None], dict[str, int | None]]] = {}
    joined = {"stack": " > ", "python": " > ", "range": " / "}[by]
    for row in stacks.rows:
        names, sums = groups.setdefault(joined.join(stacks.path(row, by)), ({}, dict.fromkeys(stacks.known, None)))
        names[stacks.kernels[row.kernel]] = None
        for name in stacks.known:
            value = row.numbers[name]
            sums[name] = sums[name] if value is None else (sums[name] or 0) + value
    by_number = "instructions" if "instructions" in stacks.known else "waves"
    total = sum(sums[by_number] or 0 for _, sums in groups.values())
    ordered = sorted(groups.items(), key=lambda item: -(item[1][1][by_number] or 0))
    shown = ordered[: top or None]
    rows = [
        (text, ", ".join(names), *sums.values(), round(100 * (sums[by_number] or 0) / total, 2) if total else None)
        for text, (names, sums) in shown
    ]
    left = f", the first {len(rows)} of {len(ordered)}" if len(rows) < len(ordered) else ""
    time = "emulation ns" if stacks.is_emulated else "ns"
    heads = [time if name == "time" else name for name in stacks.known]
    shared = "; instructions and lanes of a kernel are divided by waves" if "instructions" in stacks.known else ""
    partial = f"; {stacks.partial}" if stacks.partial else ""
    title = f"launches by {by}{left}{shared}{partial}"
    return Table(title, ({"range": "ranges"}.get(by, by), "kernels", *heads, f"% of {by_number}"), rows)


def number_of(stacks: LaunchStacks, wanted: str | None) -> str:
    """Return the name of the number to sum: by default instructions, if they were counted, otherwise launches.

    Raises:
        LuthierError: the wanted one is unknown in the run.
    """
    if wanted is None:
        return "instructions" if "instructions" in stacks.known else "launches"
    if wanted not in stacks.known:
        hint = (
            ": run with a tool that counts them, such as block_profile" if wanted in ("instructions", "lanes") else ""
        )
        raise LuthierError(f"the run has no {wanted} by stack{hint}; it has {', '.join(stacks.known)}")
    return wanted


def _is_start(frame: HostFrame) -> bool:
    object = (frame.object or "").rpartition("/")[2]
    return frame.name in _STARTS or (object.startswith(_RUNTIMES) and "+0x" in frame.name)


def _launches(run: RunFolder, numbers: KernelNumbers) -> dict[tuple[int, ...], list[int]]:
    """Return launches, timed launches and their nanoseconds by process, stack, kernel, being instrumented, and sizes.

    On an emulated device, times of a kernel's first launch are left out, as for kernels.
    """
    pa = extra("pyarrow")

    emulated = overview.is_emulated(run)
    sums: dict[tuple[int, ...], list[int]] = {}
    with run.table("launches") as reader:
        wanted = ["process", "stack", "kernel", "digest", "instrumented", *_SIZES, "number", "begin_ns", "end_ns"]
        for batch in reader.batches(wanted):
            begin, end = numeric(batch, "begin_ns", -1), numeric(batch, "end_ns", -1)
            timed = (begin >= 0) & (end >= begin)
            if emulated:
                timed &= numeric(batch, "number") != 0
            keys = {"process": numeric(batch, "process"), "stack": numeric(batch, "stack")}
            keys |= {"kernel": numbers.column(batch), "instrumented": numeric(batch, "instrumented")}
            keys |= {name: numeric(batch, name) for name in _SIZES}
            values = {"launches": np.ones(len(begin), np.int64), "timed": timed.astype(np.int64)}
            values |= {"time": np.where(timed, end - begin, 0)}
            grouped = pa.table(keys | values).group_by([*keys]).aggregate([(name, "sum") for name in values])
            columns = [grouped.column(name).to_pylist() for name in (*keys, *(f"{name}_sum" for name in values))]
            for row in zip(*columns, strict=True):
                process, stack, kernel, instrumented, *rest = row[: len(keys)]
                entry = sums.setdefault((process, stack, kernel, instrumented, *rest), [0] * len(values))
                entry[:] = (old + new for old, new in zip(entry, row[len(keys) :], strict=True))
    return sums


def _stacks(run: RunFolder) -> tuple[dict[tuple[int, int], tuple[tuple[int, ...], tuple[str, ...]]], list[HostFrame]]:
    """Return frames and ranges of each stack of each process, and all frames."""
    known: dict[HostFrame, int] = {}
    number_in: dict[tuple[int, int], int] = {}

    def number_of(frame: HostFrame) -> int:
        return known.setdefault(frame, len(known))

    for row in run.rows(schema.FRAMES.name):
        name = row["function"] or _place(row)
        frame = HostFrame(name, row["file"], row["line"] or 0, row["object"], bool(row["python"]))
        number_in[row["process"], row["frame"]] = number_of(frame)
    stacks = {}
    for row in run.rows(schema.STACKS.name):
        first = () if row["whole"] else (number_of(HostFrame(_OUTER)),)
        frames: Iterable[int] = row["frames"] or ()
        try:
            chain = tuple(number_in[row["process"], number] for number in frames)
        except KeyError:
            raise LuthierError(f"{run.path} is damaged: a stack has a frame that is in no table") from None
        stacks[row["process"], row["stack"]] = (*first, *chain), tuple(row["ranges"] or ())
    return stacks, list(known)


def _place(row: dict[str, Any]) -> str:
    """Return a name for a call in a function without a symbol."""
    return (
        f"{row['object'].rpartition('/')[2] or 'code compiled at run time'}+{row['offset'] or 0:#x}"
        if row["object"] is not None
        else _UNKNOWN
    )
