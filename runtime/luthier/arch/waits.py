"""Counters of what runs on behind a wave's back, as data: what a generation says of them.

`luthier.hazards.wait_counters.model` says what they mean.

Sources: LLVM, SIInsertWaitcnts (events and their counters, what returns out of order), AMDGPUBaseInfo (fields and
widths); the ISA documents, "Data Dependency Resolution", "Manually Inserted Wait States (NOPs)", "S_WAITCNT".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from luthier.errors import TargetError


class WaitCounter(NamedTuple):
    """A counter of operations that are not done."""

    name: str
    """Name in assembly, e.g. ``vmcnt``."""
    most: int
    """The largest number that it holds."""


class Stream(NamedTuple):
    """Operations that one counter counts and that are done in a certain order."""

    name: str
    counter: int
    """Index in `Waits.counters`."""
    ordered: bool = True
    """They are done in the order of issue."""
    locks: bool = False
    """Not results are awaited: sources (and EXEC) are read late and must not change until then."""
    replaces: tuple[str, ...] = ()
    """Streams whose results one of this may overwrite while they are outstanding, since results are written in the
    order of issue."""
    beside: tuple[str, ...] = ()
    """Other streams of the counter, which it counts down in the order of issue of them all."""


class LimitField(NamedTuple):
    """Field of an instruction that holds a limit; all ones are no limit."""

    counter: str
    pieces: tuple[tuple[int, int], ...]
    """(lowest bit, bits), the lowest piece first."""


class Waits(Struct, frozen=True, eq=False, kw_only=True):
    """Counters, streams and wait instructions of a generation."""

    counters: tuple[WaitCounter, ...]
    streams: tuple[Stream, ...]
    fields: Mapping[str, tuple[LimitField, ...]]
    """LLVM's generic name of a wait instruction -> the limits in its immediate."""
    halves: bool
    """Loads of 16 bits write half a register, and instructions read halves: they are outstanding each for itself."""
    releases: Mapping[str, str]
    """Other instructions behind which all of a stream is done, by generic name."""
    complete: bool = True
    """Nothing but these counters says when registers may be used."""
    uncounted: tuple[str, ...]
    """Memory instructions that no counter counts: how their generic names begin."""
    to_lds: tuple[str, ...]
    """Words in the generic names of those that move between memory and LDS without registers, with counters of their
    own."""
    late_scc: frozenset[str]
    """Generic names of what gives SCC late."""

    def __post_init__(self) -> None:
        """Every name is there."""
        counters = {counter.name for counter in self.counters}
        streams = {stream.name for stream in self.streams}
        for name, places in self.fields.items():
            for place in places:
                if place.counter not in counters:
                    raise TargetError(f"{name} waits for {place.counter}, which is no counter")
        for name in (
            *self.releases.values(),
            *(other for row in self.streams for other in (*row.replaces, *row.beside)),
        ):
            if name not in streams:
                raise TargetError(f"{name} is no stream of counters")


def streams(counters: tuple[WaitCounter, ...], *rows: tuple[str, Stream]) -> tuple[Stream, ...]:
    """Streams, each of the counter of a name."""
    index = {counter.name: number for number, counter in enumerate(counters)}
    return tuple(stream._replace(counter=index[name]) for name, stream in rows)


def waitcnt(vm: tuple[tuple[int, int], ...], exp: int, lgkm: tuple[int, int]) -> tuple[LimitField, ...]:
    """The immediate of ``s_waitcnt``."""
    return LimitField("vmcnt", vm), LimitField("expcnt", ((exp, 3),)), LimitField("lgkmcnt", (lgkm,))
