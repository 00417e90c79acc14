"""Payloads with guards: comparisons at the point itself, and a branch over the payload."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.isa import Isa, RegisterRange
from luthier.isa.registers import SGPRS, VCC
from luthier.lifting import Live
from luthier.patch.boundary.scalar_reads import settled
from luthier.patch.payloads.code import BoundPayload, snippet
from luthier.tool.guards import Guard

_BRANCH_BYTES = 4


class GuardedPlace(Struct, frozen=True):
    """A guard at one point."""

    guard: Guard
    lead: tuple[str, ...]
    """Assembly before it."""
    kept: tuple[int, ...] | None
    """SGPR units in which VCC is saved; None if VCC is dead."""


def free_place(live: Live, sgprs: int, wave_size: int, taken: int) -> tuple[int, ...] | None:
    """Return free SGPR units of the kernel for VCC, if there are any.

    Args:
        taken: bit set of used units.
    """
    count = 2 if wave_size > 32 else 1
    held = live.all_bits | taken
    for first in range(SGPRS.start, SGPRS.start + sgprs - count + 1, count):
        if not held >> first & (1 << count) - 1:
            return tuple(range(first, first + count))
    return None


def guarded(isa: Isa, payload: BoundPayload, place: GuardedPlace) -> BoundPayload:
    """Return a payload preceded by its guard."""
    keep, give_back = (settled(isa.target.target, lines) for lines in _moves(place.kept))
    head, heads = snippet(isa, "\n".join([*place.lead, *keep])) if place.lead or keep else (b"", 0)
    tests = [snippet(isa, _settled_moves(isa, text)) for text in place.guard.tests]
    again, more = snippet(isa, "\n".join(give_back)) if give_back else (b"", 0)
    sizes = [len(code) + _BRANCH_BYTES for code, _ in tests]
    body = len(head) + sum(sizes)
    code, at = head, len(head)
    quick = body + len(again) + len(payload.code) + (_BRANCH_BYTES if again else 0)
    for number, ((test, _), size) in enumerate(zip(tests, sizes, strict=True)):
        at += size
        last = number == len(tests) - 1
        code += test + _branch(isa, "s_cbranch_vccz" if last else "s_cbranch_vccnz", (quick if last else body) - at)
    code += again + payload.code
    shift = body + len(again)
    if again:
        code += _branch(isa, "s_branch", len(again)) + again
    return replace(
        payload,
        code=code,
        references=tuple(replace(one, offset=one.offset + shift) for one in payload.references),
        instructions=heads + sum(count + 1 for _, count in tests) + 2 * more + bool(again) + payload.instructions,
        immediates=tuple(one + shift for one in payload.immediates),
        call=None if payload.call is None else payload.call + shift,
    )


def head_of(isa: Isa, place: GuardedPlace) -> bytes:
    """Return the code of a guard up to its decision."""
    keep, _ = _moves(place.kept)
    return snippet(isa, "\n".join([*keep, *place.guard.tests]))[0]


def _moves(kept: Sequence[int] | None) -> tuple[list[str], list[str]]:
    """Return assembly that saves VCC, and assembly that restores it."""
    if kept is None:
        return [], []
    place, vcc = RegisterRange(kept[0], len(kept)), RegisterRange(VCC[0], len(kept))
    move = f"s_mov_b{32 * len(kept)}"
    return [f"{move} {place}, {vcc}"], [f"{move} {vcc}, {place}"]


def _settled_moves(isa: Isa, test: str) -> str:
    """Return a test with a wait between its moves and its comparison."""
    return "\n".join(line for one in test.splitlines() for line in settled(isa.target.target, [one]))


def _branch(isa: Isa, name: str, distance: int) -> bytes:
    return snippet(isa, f"{name} {distance // _BRANCH_BYTES}")[0]
