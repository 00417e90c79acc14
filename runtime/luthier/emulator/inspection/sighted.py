"""Races, barriers and exceptional floats that native code sees while a launch runs, as `luthier sanitize` tells them of
programs."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterator

from msgspec import Struct

from luthier.emulator import layout
from luthier.emulator.binding.program import Code, own_zeros
from luthier.emulator.inspection.uses import Uses
from luthier.objects.source import SourceLocation, in_source
from luthier.wire.messages import Sight, Sighting

RACE, BARRIER, EARLY_EXIT, FLOATS = "race", "barrier", "early-exit", "fp"
SIGHTED = {
    RACE: layout.OBSERVE_RACES,
    BARRIER: layout.OBSERVE_BARRIERS,
    EARLY_EXIT: layout.OBSERVE_BARRIERS,
    FLOATS: layout.OBSERVE_FLOATS,
}
"""Checks, and their bits in what native code looks for."""
FLOAT_KINDS = layout.FLOAT_NAN | layout.FLOAT_INFINITY
"""Exceptional floats that are looked for unless others are asked for."""
_SEEN = {
    Sight.RACE: (RACE, "race"),
    Sight.UNORDERED_READ: (RACE, "read of LDS beside an atomic"),
    Sight.DIVERGENT_BARRIER: (BARRIER, "barrier that lanes skipped which went on behind it"),
    Sight.MISSED_BARRIER: (EARLY_EXIT, "barrier that a wave of the work-group never came to"),
    Sight.NAN: (FLOATS, "NaN from operands that are none"),
    Sight.INFINITY: (FLOATS, "infinity from operands that are neither infinite nor NaN"),
}
"""What native code sees, its check, and what it is called."""
_OTHERS = {RACE: "nothing orders it and", BARRIER: "they came later to", EARLY_EXIT: "it ended at"}


class Sighted(Struct, frozen=True):
    """Finding of a check at one instruction, with the other instruction that has to do with it."""

    check: str
    """One of `SIGHTED`."""
    title: str
    """What happened."""
    kernel: str
    address: int
    """Virtual address of the instruction."""
    text: str
    workgroup: int
    wave: int
    lane: int
    place: int
    """First byte of the access: a device address, or an offset in LDS; 0 where there is none."""
    size: int
    """Bytes of the access; 0 where there is none."""
    in_lds: bool
    other_address: int
    """Virtual address of the other instruction; -1 where there is none."""
    other_text: str
    other_workgroup: int
    other_wave: int
    other_lane: int
    count: int = 1
    """Lanes and times of which this is the first."""
    source: SourceLocation | None = None
    """Source location of the instruction, if debug information has one."""

    def __str__(self) -> str:
        what = "" if not self.size else f" {self.size} bytes {'of LDS ' if self.in_lds else ''}at {self.place:#x}"
        second = f"; {_OTHERS[self.check]} {self.other_address:#x} ({self.other_text}), " if self.other_text else ""
        second += f"work-group {self.other_workgroup} wave {self.other_wave} lane {self.other_lane}" if second else ""
        more = f"; {self.count} such" if self.count > 1 else ""
        return (
            f"{self.title} in {self.kernel} at {self.address:#x} ({self.text}): work-group {self.workgroup} "
            f"wave {self.wave} lane {self.lane}{what}{second}{more}{in_source(self.source)}"
        )


def wanted(names: Collection[str]) -> int:
    """Return what native code is to look for, of checks of which some may be others."""
    return functools.reduce(operator.or_, (SIGHTED[name] for name in names if name in SIGHTED), 0)


def uses_of(code: Code) -> int:
    """Return the address of what a launch of this code is to know of its instructions (`uses` of `layout.PLAN`)."""
    return int(code.watcher(Uses, lambda: Uses(code, own_zeros)).table.ctypes.data)


def sighted(sightings: Collection[Sighting], names: Collection[str], code: Code, kernel: str) -> Iterator[Sighted]:
    """Yield the findings of the checks that are wanted."""
    for seen in sightings:
        check, title = _SEEN.get(Sight(seen.kind), ("", ""))
        if check not in names:
            continue
        has = bool(seen.has_other)
        yield Sighted(
            check,
            title,
            kernel,
            code.address_of(seen.record),
            code.text(seen.record),
            *(seen.group, seen.wave, seen.lane, seen.address, seen.size, bool(seen.in_lds)),
            code.address_of(seen.other_record) if has else -1,
            code.text(seen.other_record) if has else "",
            *(seen.other_group, seen.other_wave, seen.other_lane),
            count=seen.count,
        )
