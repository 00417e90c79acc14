"""Values that are addresses, and how scalar operations make them.

A register holds a set of possible values (`Values`), or None where it may hold anything. Offsets are kept apart from
the program counter they are added to, because the carry from the low half to the high half depends on where the object
is loaded. Instructions are named by their addresses, so that what is found holds for every kernel of the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from luthier.isa import registers as r

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1
MOST_VALUES = 16
"""Alternatives followed for one register."""


class EntryValue(Struct, frozen=True):
    """The value of `unit` when the function was entered."""

    unit: int


class Const(Struct, frozen=True):
    """A 32-bit constant."""

    value: int


class Low(Struct, frozen=True):
    """Low half of the program counter that instruction `getpc` reads, plus an offset with these low 32 bits."""

    getpc: int
    offset: int


class High(Struct, frozen=True):
    """High half of the program counter that instruction `getpc` reads, plus this 64-bit offset."""

    getpc: int
    offset: int


class PointerSlot(Struct, frozen=True):
    """Half 0 or 1 of the 64-bit word in memory at the program counter of `getpc` plus a 64-bit offset."""

    getpc: int
    offset: int
    half: int


class HalfAddress(Struct, frozen=True):
    """Half 0 or 1 of an address somewhere in the object that `High(getpc, offset)` and its low half point to."""

    getpc: int
    offset: int
    half: int


class Element(Struct, frozen=True):
    """Half 0 or 1 of some 64-bit word of the object that `High(getpc, offset)` and its low half point to."""

    getpc: int
    offset: int
    half: int


class Carry(Struct, frozen=True):
    """SCC after the instruction at `place` added `amount` to `Low(getpc, before)`, or subtracted it."""

    getpc: int
    before: int
    amount: int
    place: int
    literal: bool
    subtract: bool


class LaneElement(Struct, frozen=True):
    """An `Element` of the same name in each lane that was active when instruction `load` last ran."""

    load: int
    getpc: int
    offset: int
    half: int


class Within(Struct, frozen=True):
    """A mask of lanes that were all active when each of the instructions `loads` last ran."""

    loads: frozenset[int]


Value: TypeAlias = EntryValue | Const | Low | High | PointerSlot | HalfAddress | Element | Carry | LaneElement | Within
Values: TypeAlias = frozenset[Value]
Key: TypeAlias = int | tuple[int, int]
"""A register unit, or (VGPR unit, lane) for a scalar put into a lane."""
Taint: TypeAlias = tuple[int, bool]
"""An s_getpc_b64 whose value may be in a register, and whether an offset has been added to it already."""


class AddressState:
    """Abstract state at a point.

    Attributes:
        values: a scalar unit that is missing holds its entry value, unless it is in `unknown`; a lane or a vector unit
            that is missing, anything.
        unknown: bit set of the scalar units that may hold anything.
        taints: every program counter that may be in a register, whether its value is known or not: unlike values,
            nothing is ever forgotten where paths join.
        held: bit set of the units that have a key in `values` or had one.
        tainted_units: bit set of the units that have a key in `taints` or had one.
    """

    __slots__ = ("held", "tainted_units", "taints", "unknown", "values")

    def __init__(self) -> None:
        self.values: dict[Key, Values] = {}
        self.unknown = 0
        self.taints: dict[Key, frozenset[Taint]] = {}
        self.held = self.tainted_units = 0

    def copy(self) -> AddressState:
        """Return an independent copy."""
        other = AddressState()
        other.values, other.unknown, other.taints = dict(self.values), self.unknown, dict(self.taints)
        other.held, other.tainted_units = self.held, self.tainted_units
        return other

    def __getitem__(self, key: Key) -> Values | None:
        known = self.values.get(key)
        if known is not None:
            return known
        if isinstance(key, int) and key < r.VGPR_FIRST and not self.unknown >> key & 1:
            return frozenset([EntryValue(key)])
        return None

    def __setitem__(self, key: Key, values: Values | None) -> None:
        if isinstance(key, int) and key < 0:  # SGPR_NULL
            return
        if values is not None:
            self.values[key] = values
            self.held |= 1 << unit_of(key)
        else:
            self.values.pop(key, None)
        if isinstance(key, int) and key < r.VGPR_FIRST:
            self.unknown = self.unknown | 1 << key if values is None else self.unknown & ~(1 << key)

    @property
    def size(self) -> int:
        """Return how many values and program counters it holds."""
        return len(self.values) + sum(map(len, self.taints.values()))

    def join(self, other: AddressState) -> bool:
        """Merge `other` into this state; True if that changed it."""
        changed = bool(other.unknown & ~self.unknown)
        if changed:
            self.forget(other.unknown)
        for key in () if self.values == other.values else {*self.values, *other.values}:
            mine, theirs = self[key], other[key]
            if mine is None or mine == theirs:
                continue
            merged = None if theirs is None else mine | theirs
            if merged is not None and len(merged) > MOST_VALUES:
                merged = None
            if merged != mine:
                self[key] = merged
                changed = True
        if other.taints != self.taints:
            for key, taints in other.taints.items():
                both = self.taints.get(key, frozenset()) | taints
                if both != self.taints.get(key):
                    self.taint(key, both)
                    changed = True
        return changed

    def taint(self, key: Key, taints: frozenset[Taint]) -> None:
        """Set the program counters that may be in `key`."""
        self.taints[key] = taints
        self.tainted_units |= 1 << unit_of(key)

    def forget(self, units: int) -> None:
        """Know nothing of the scalar units and of the lanes of the vector units in this mask any more."""
        self.unknown |= units & r.SCALAR_MASK
        if units & self.held:
            for key in [key for key in self.values if units >> unit_of(key) & 1]:
                del self.values[key]
            self.held &= ~units

    def overwrite(self, units: int, replaced: int) -> None:
        """Forget units, and the program counters in those scalar units that are wholly replaced."""
        self.forget(units)
        replaced &= self.tainted_units & r.SCALAR_MASK
        if replaced:
            self.tainted_units &= ~replaced
            for unit in [key for key in self.taints if isinstance(key, int) and replaced >> key & 1]:
                del self.taints[unit]

    def tainted(self, units: int) -> frozenset[Taint]:
        """Return the program counters that may be in these units."""
        found: frozenset[Taint] = frozenset()
        if units & self.tainted_units:
            for key, taints in self.taints.items():
                if units >> unit_of(key) & 1:
                    found |= taints
        return found


def unit_of(key: Key) -> int:
    """Return the unit that a key of `AddressState.values` is, or has a lane of."""
    return key if isinstance(key, int) else key[0]


class GetpcReference(Struct, frozen=True):
    """An s_getpc_b64 and its two adds, as addresses, and the 64-bit offset added."""

    getpc: int
    low: int
    high: int
    offset: int


class Notes:
    """Findings about the operations of one function, besides values.

    Instructions are addresses.

    Args:
        leaves: whether control may leave the function at an instruction.
    """

    def __init__(self, leaves: Callable[[int], bool]) -> None:
        self._leaves = leaves
        self.references: set[GetpcReference] = set()
        self.low_adds: dict[int, int] = {}
        """Instruction that adds to the low half of a fresh program counter -> its s_getpc_b64."""
        self.computed: set[int] = set()
        """s_getpc_b64 whose value is added to in ways other than by two literals."""
        self.raw_uses: set[int] = set()
        """s_getpc_b64 whose value is read by what is not followed before an offset was added."""
        self.other_uses: set[int] = set()
        """Instructions that use values with an offset."""
        self.values: set[int] = set()
        """Those of `other_uses` that go elsewhere than to jumps."""

    def use(self, taints: frozenset[Taint], place: int) -> None:
        """Note an instruction that uses program counters in ways that are not followed."""
        if not taints:
            return
        derived = {getpc for getpc, has_offset in taints if has_offset}
        self.raw_uses.update(getpc for getpc, has_offset in taints if not has_offset)
        self.other_uses |= derived
        if not self._leaves(place):
            self.values |= derived


def pair_of(low: Values | None, high: Values | None) -> tuple[int, int] | None:
    """Return s_getpc_b64 and 64-bit offset of a register pair that holds exactly one whole address."""
    if low is None or high is None or len(low) != 1 or len(high) != 1:
        return None
    (one,), (other,) = low, high
    if not isinstance(one, Low) or not isinstance(other, High):
        return None
    if one.getpc != other.getpc or one.offset != other.offset & MASK32:
        return None
    return other.getpc, other.offset


def near_of(low: Values | None, high: Values | None) -> tuple[int, int] | None:
    """Return s_getpc_b64 and 64-bit offset of the object that a register pair points into."""
    if low is None or high is None or len(low) != 1 or len(high) != 1:
        return None
    (one,), (other,) = low, high
    if not isinstance(one, HalfAddress) or not isinstance(other, HalfAddress) or one.getpc != other.getpc:
        return None
    return (other.getpc, other.offset) if one.offset == other.offset & MASK32 else None
