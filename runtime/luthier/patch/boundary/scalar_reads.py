"""SGPR hazard on GFX12: an SGPR that a vector instruction has read, and another instruction has overwritten, needs a
wait before it is read again.

LLVM inserts these waits inside the application and inside a payload, and assumes that a function is entered with all
SGPRs read and none outstanding. A payload therefore begins with waits, and code around LLVM's code has its own waits.
If the application does not expect the state that a payload leaves (`luthier.hazards.wait_states.exposure`), the payload
ends with waits, and with code that makes the hardware forget its reads.

Source: LLVM, AMDGPUWaitSGPRHazards.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from luthier.arch.parties import DS_NOPS, VALU
from luthier.hazards.wait_states.exposure import EVERYTHING, Exposure
from luthier.hazards.wait_states.kinds import pairs, test_of
from luthier.isa import Isa
from luthier.isa.registers import SGPRS, TTMPS, VCC, mask_of
from luthier.isa.targets import Target
from luthier.lifting import LiftedRepresentation
from luthier.lifting.instructions.effects import Columns, effect_table

_SCALAR_WRITE = re.compile(r"^s_(?!nop|wait|set_|cmp)\w+ (\w+)", re.MULTILINE)
_NAME = re.compile(r"\w+")


def settled(target: Target, lines: Sequence[str]) -> list[str]:
    """Return assembly followed by a wait for results of its scalar instructions."""
    if target.scalar_wait is None or not any(_SCALAR_WRITE.search(line) for line in lines):
        return [*lines]
    return [*lines, target.scalar_wait]


def copies_settled(target: Target, lines: Iterable[str]) -> list[str]:
    """Return copies between registers, with waits before reads of results of earlier copies."""
    spaced: list[str] = []
    written: set[str] = set()
    for line in lines:
        if target.scalar_wait is not None and not written.isdisjoint(_NAME.findall(line)):
            spaced.append(target.scalar_wait)
            written.clear()
        if match := _SCALAR_WRITE.search(line):
            written.add(match[1])
        spaced.append(line)
    return spaced


def scalars_ready(target: Target, reads: int) -> list[str]:
    """Return assembly before reads of the units in a bit set, which waits for the application's results."""
    wait = target.lane_mask_wait
    return [wait] if wait is not None and target.scalar_wait is not None and reads & _KEPT else []


def forget_reads(target: Target, wave_size: int) -> tuple[str, ...]:
    """Return assembly after which no SGPR counts as read by vector instructions."""
    return () if target.scalar_wait is None else ("ds_nop",) * DS_NOPS[wave_size]


class Leftovers(NamedTuple):
    """SGPRs through which a payload may affect the application after it, as bit sets of units."""

    read: int
    """SGPRs that vector instructions read, with the other SGPR of each pair."""
    written: int
    """SGPRs that are written at its end."""

    @classmethod
    def of(cls, isa: Isa, code: bytes, written: int) -> Leftovers:
        """Return the leftovers of a payload's code."""
        return cls(read_by_vectors(isa, code), written & _KEPT)


def read_by_vectors(isa: Isa, code: bytes) -> int:
    """Return the SGPRs, by pairs, that vector instructions of some code read."""
    columns, table = Columns(isa.decode(code)), effect_table(isa)
    is_vector = test_of(VALU.kind)
    reads = 0
    for index, number in enumerate(columns.opcode):
        if number >= 0 and is_vector(isa.opcode(number)):
            reads |= table.of(columns, index).reads
    return pairs(reads & _KEPT)


_KEPT = mask_of((*SGPRS, *VCC, *TTMPS))
"""Registers whose reads the hardware records."""


def after_entry(isa: Isa, code: bytes) -> tuple[str, ...]:
    """Return assembly after code at a kernel's entry, since the kernel assumes that no SGPR was read."""
    target = isa.target.target
    if target.lane_mask_wait is None or target.scalar_wait is None or not read_by_vectors(isa, code):
        return ()
    return target.lane_mask_wait, *forget_reads(target, isa.wave_size)


class Endings:
    """Assembly at the end of payloads for states that the application does not expect.

    Args:
        edited: whether the application's instructions change, so that its expectations are unknown.
    """

    def __init__(self, lifted: LiftedRepresentation, *, edited: bool) -> None:
        self._lifted = lifted
        self.needed = lifted.target.scalar_wait is not None
        """Whether any ending may be needed."""
        self._edited = edited
        self._lines: dict[tuple[bool, bool], tuple[str, ...]] = {}
        """Whether it waits, and whether it lets reads be forgotten -> the assembly of both."""

    @functools.cached_property
    def _exposure(self) -> Exposure:
        return Exposure(self._lifted)

    def at(self, point: int, left: Leftovers) -> tuple[str, ...]:
        """Return assembly for the end of a payload before instruction `point`."""
        target = self._lifted.target
        if target.lane_mask_wait is None or not (left.read or left.written):
            return ()
        exposed = EVERYTHING if self._edited else self._exposure.before(point)
        waits, forgets = bool(left.written & exposed.middle), bool(left.read & exposed.first)
        lines = self._lines.get((waits, forgets))
        if lines is None:
            wait = (target.lane_mask_wait,) if waits else ()
            lines = (*wait, *(forget_reads(target, self._lifted.wave_size) if forgets else ()))
            self._lines[waits, forgets] = lines
        return lines
