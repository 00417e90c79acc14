"""Abstract values of registers: addresses and the parts from which they are computed.

A register holds a set of possible values (`Values`), or None if it is unknown. Offsets are kept separate from the
program counter to which they are added, because the carry from the low to the high half depends on the load address.
Instructions are identified by their addresses, so that results hold for every kernel of the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from luthier.isa import registers as r

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1
MOST_VALUES = 16
"""Maximum number of possible values of one register."""


class EntryValue(Struct, frozen=True):
    """The value of `unit` at the function's entry."""

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
    """Half 0 or 1 of an address inside the data object that `High(getpc, offset)` and its low half point to."""

    getpc: int
    offset: int
    half: int


class Element(Struct, frozen=True):
    """Half 0 or 1 of a 64-bit word of the data object that `High(getpc, offset)` and its low half point to."""

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
    """An `Element` with these fields in each lane that was active when instruction `load` last ran."""

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
"""A register unit, or (VGPR unit, lane) for a scalar stored in a lane."""
Taint: TypeAlias = tuple[int, bool]
"""An s_getpc_b64 whose value may be in a register, and whether an offset has already been added to it."""


class AddressState:
    """Abstract state at a point.

    Attributes:
        values: a missing scalar unit holds its entry value, unless it is in `unknown`; a missing lane or vector unit is
            unknown.
        unknown: bit set of the unknown scalar units.
        taints: all program counters that may be in a register, even if its value is unknown. Unlike values, they are
            never dropped where paths join.
        held: bit set of the units that have or had a key in `values`.
        tainted_units: bit set of the units that have or had a key in `taints`.
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
        """Return the number of values and program counters in the state."""
        return len(self.values) + sum(map(len, self.taints.values()))

    def join(self, other: AddressState) -> bool:
        """Merge `other` into this state, and return whether this changed."""
        changed = bool(other.unknown & ~self.unknown)
        if changed:
            self.forget(other.unknown)
        for key in () if self.values == other.values else {*self.values, *other.values}:
            values, incoming = self[key], other[key]
            if values is None or values == incoming:
                continue
            merged = None if incoming is None else values | incoming
            if merged is not None and len(merged) > MOST_VALUES:
                merged = None
            if merged != values:
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
        """Make the scalar units, and the lanes of the vector units, in this mask unknown."""
        self.unknown |= units & r.SCALAR_MASK
        if units & self.held:
            for key in [key for key in self.values if units >> unit_of(key) & 1]:
                del self.values[key]
            self.held &= ~units

    def overwrite(self, units: int, replaced: int) -> None:
        """Forget units, and the program counters in scalar units that are completely replaced."""
        self.forget(units)
        replaced &= self.tainted_units & r.SCALAR_MASK
        if replaced:
            self.tainted_units &= ~replaced
            for unit in [key for key in self.taints if isinstance(key, int) and replaced >> key & 1]:
                del self.taints[unit]

    def tainted(self, units: int) -> frozenset[Taint]:
        """Return the program counters that may be in these units."""
        result: frozenset[Taint] = frozenset()
        if units & self.tainted_units:
            for key, taints in self.taints.items():
                if units >> unit_of(key) & 1:
                    result |= taints
        return result


def unit_of(key: Key) -> int:
    """Return the unit of a key of `AddressState.values`."""
    return key if isinstance(key, int) else key[0]


class GetpcReference(Struct, frozen=True):
    """The addresses of an s_getpc_b64 and of its two additions, and the 64-bit offset that they add."""

    getpc: int
    low: int
    high: int
    offset: int


class Notes:
    """Observations about the operations of one function. Instructions are given as addresses.

    Args:
        leaves: whether control may leave the function at an instruction.
    """

    def __init__(self, leaves: Callable[[int], bool]) -> None:
        self._leaves = leaves
        self.references: set[GetpcReference] = set()
        self.low_adds: dict[int, int] = {}
        """Instruction that adds to the low half of a fresh program counter -> its s_getpc_b64."""
        self.computed: set[int] = set()
        """s_getpc_b64 with additions other than of two literals."""
        self.raw_uses: set[int] = set()
        """s_getpc_b64 with uses that are not followed, before an offset is added."""
        self.other_uses: set[int] = set()
        """s_getpc_b64 with uses that are not followed, after an offset is added."""
        self.values: set[int] = set()
        """Those of `other_uses` with uses other than jumps."""

    def use(self, taints: frozenset[Taint], address: int) -> None:
        """Record that the instruction at an address uses program counters in ways that are not followed."""
        if not taints:
            return
        derived = {getpc for getpc, has_offset in taints if has_offset}
        self.raw_uses.update(getpc for getpc, has_offset in taints if not has_offset)
        self.other_uses |= derived
        if not self._leaves(address):
            self.values |= derived


def pair_of(low: Values | None, high: Values | None) -> tuple[int, int] | None:
    """Return the s_getpc_b64 and 64-bit offset of a register pair that holds exactly one complete address."""
    if low is None or high is None or len(low) != 1 or len(high) != 1:
        return None
    (lower,), (upper,) = low, high
    if not isinstance(lower, Low) or not isinstance(upper, High):
        return None
    if lower.getpc != upper.getpc or lower.offset != upper.offset & MASK32:
        return None
    return upper.getpc, upper.offset


def near_of(low: Values | None, high: Values | None) -> tuple[int, int] | None:
    """Return the s_getpc_b64 and 64-bit offset of the data object that a register pair points into."""
    if low is None or high is None or len(low) != 1 or len(high) != 1:
        return None
    (lower,), (upper,) = low, high
    if not isinstance(lower, HalfAddress) or not isinstance(upper, HalfAddress) or lower.getpc != upper.getpc:
        return None
    return (upper.getpc, upper.offset) if lower.offset == upper.offset & MASK32 else None
