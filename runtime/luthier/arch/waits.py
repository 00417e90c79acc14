"""Counters of asynchronous operations, as data of a generation.

`luthier.hazards.wait_counters.model` defines their meaning.

Sources: LLVM, SIInsertWaitcnts (events and their counters, results out of order), AMDGPUBaseInfo (fields and
widths); the ISA documents, "Data Dependency Resolution", "Manually Inserted Wait States (NOPs)", "S_WAITCNT".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from luthier.errors import TargetError


class WaitCounter(NamedTuple):
    """Counter of outstanding operations."""

    name: str
    """Name in assembly, e.g. ``vmcnt``."""
    most: int
    """Largest value."""


class Stream(NamedTuple):
    """Operations of one counter, with their order of completion."""

    name: str
    counter: int
    """Index in `Waits.counters`."""
    ordered: bool = True
    """Whether they complete in the order of issue."""
    locks: bool = False
    """Whether waits are for sources (and EXEC), which are read late and must not change before, not for results."""
    replaces: tuple[str, ...] = ()
    """Streams whose outstanding results this stream may overwrite, as results are written in the order of issue."""
    beside: tuple[str, ...] = ()
    """Other streams of the counter, which decreases in the order of issue of all of them."""


class LimitField(NamedTuple):
    """Field of an instruction with a limit; all ones mean no limit."""

    counter: str
    pieces: tuple[tuple[int, int], ...]
    """(lowest bit, number of bits), lowest piece first."""


class Waits(Struct, frozen=True, eq=False, kw_only=True):
    """Counters, streams and wait instructions of a generation."""

    counters: tuple[WaitCounter, ...]
    streams: tuple[Stream, ...]
    fields: Mapping[str, tuple[LimitField, ...]]
    """LLVM's generic name of a wait instruction -> the limits in its immediate."""
    halves: bool
    """Whether 16-bit loads write, and instructions read, halves of registers, which are outstanding independently."""
    releases: Mapping[str, str]
    """Generic names of other instructions -> stream that is complete after them."""
    complete: bool = True
    """Whether only these counters determine when registers may be used."""
    uncounted: tuple[str, ...]
    """Prefixes of the generic names of memory instructions without a counter."""
    to_lds: tuple[str, ...]
    """Words in the generic names of moves between memory and LDS without registers, which have their own counters."""
    late_scc: frozenset[str]
    """Generic names of instructions that write SCC late."""

    def __post_init__(self) -> None:
        """Check that all names are defined."""
        counters = {counter.name for counter in self.counters}
        streams = {stream.name for stream in self.streams}
        for name, places in self.fields.items():
            for place in places:
                if place.counter not in counters:
                    raise TargetError(f"{name} waits for {place.counter}, which is not a counter")
        for name in (
            *self.releases.values(),
            *(other for row in self.streams for other in (*row.replaces, *row.beside)),
        ):
            if name not in streams:
                raise TargetError(f"{name} is not a stream of counters")


def streams(counters: tuple[WaitCounter, ...], *rows: tuple[str, Stream]) -> tuple[Stream, ...]:
    """Return streams with the indices of their counters, given by name."""
    index = {counter.name: number for number, counter in enumerate(counters)}
    return tuple(stream._replace(counter=index[name]) for name, stream in rows)


def waitcnt(vm: tuple[tuple[int, int], ...], exp: int, lgkm: tuple[int, int]) -> tuple[LimitField, ...]:
    """Return the fields of the immediate of ``s_waitcnt``."""
    return LimitField("vmcnt", vm), LimitField("expcnt", ((exp, 3),)), LimitField("lgkmcnt", (lgkm,))
