"""What is known of lane masks at a point: groups of lanes, and which groups each mask holds.

The lanes of a wave are divided into a few groups. Each is either active or inactive as a whole, and of each mask in
scalar registers it is known whether it holds all lanes of a group, none of them, or perhaps some. When EXEC is given a
mask that may hold some, that group is split in two, and with it what is known of the masks it was computed from:
behind ``s_and_saveexec_b64 s[2:3], vcc`` there is a group that is active, in VCC and in s[2:3], and one that is
inactive, not in VCC, and in s[2:3]. So ``s_or_b64 exec, exec, s[2:3]`` is seen to bring back the lanes that were
active before and no others, and the same goes for loops (``s_or`` gathers the lanes that have left, ``s_andn2`` takes
them out of EXEC) and for the other arm of a branch.

A group is a name given to lanes on the way of a wave through the code, nothing that exists in the machine: where ways
join, any group of the one may be declared to be any group of the other that is equally active. Which choice keeps most
of what is known is a matter of taste, not of correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from luthier.isa.registers import EXEC_LO, SCALAR_MASK

Key: TypeAlias = int | tuple[int, int]
"""A scalar register unit, or (VGPR unit, lane) for a scalar put into a lane."""
Mask: TypeAlias = tuple[int, int]
"""Bit sets of groups: those a mask certainly holds whole, and those it may hold lanes of."""
Told: TypeAlias = list[int]
"""Bit sets of groups that may have lanes where a result is set and an operand clear, both are set, the result is clear
and the operand clear, the result clear and the operand set."""
Held: TypeAlias = tuple[int, int, int]
"""What a 32-bit register holds: of the mask's half 0 or 1 (`EITHER` for constants) a `Mask`."""

EITHER = 2
EXEC_SOURCE, ZERO, ONES, UNKNOWN = EXEC_LO, -1, -2, -3
"""Sources of mask operations besides register units."""
MOST_GROUPS = 10
"""Above this, the groups that differ least are taken together."""
MOST_JOINED = 6
"""Groups up to which a join makes a new one rather than forget something."""
_OWN_WEIGHT = 64
"""How much rather to keep what is known of the entry mask than of any other."""
_NEVER = 1 << 20

GROUP_OUTSIDE, GROUP_OWN = 0, 1
"""Groups where a function is entered: the lanes that are not active, and those that are."""


class LaneMasks:
    """What is known at a point.

    Attributes:
        count: groups; they are numbered from 0.
        on: bit set of the groups that are active.
        own: what is known of the mask EXEC was when the function was entered.
        held: what is known of registers; those that are missing may hold anything.
        moved: the unit whose value at the function's entry a register has, -1 if none; units that are missing have
            their own, lanes that are missing none. None if that is not followed.
    """

    __slots__ = ("count", "held", "moved", "on", "own", "wide")

    def __init__(self, wide: bool, moved: bool = False) -> None:
        self.wide = wide
        """Whether masks have 64 bits, in two registers."""
        self.count = 2
        self.on = 1 << GROUP_OWN
        self.own: Mask = (1 << GROUP_OWN, 1 << GROUP_OWN)
        self.held: dict[Key, Held] = {}
        self.moved: dict[Key, int] | None = {} if moved else None

    def copy(self) -> LaneMasks:
        other = LaneMasks.__new__(LaneMasks)
        other.wide, other.count, other.on, other.own = self.wide, self.count, self.on, self.own
        other.held = dict(self.held)
        other.moved = None if self.moved is None else dict(self.moved)
        return other

    @property
    def everything(self) -> int:
        """All groups."""
        return (1 << self.count) - 1

    # Registers

    def mask(self, source: int) -> Mask:
        """What is known of a whole mask: in a unit, or a pair of units beginning there."""
        if source == EXEC_SOURCE:
            return self.on, self.on
        if source < 0:
            return (
                (0, 0) if source == ZERO else (self.everything, self.everything) if source == ONES else self._nothing()
            )
        low = self.held.get(source)
        if low is None or low[0] == 1:
            return self._nothing()
        if not self.wide:
            return low[1], low[2]
        high = self.held.get(source + 1)
        if high is None or high[0] == 0:
            return self._nothing()
        return low[1] & high[1], low[2] | high[2]

    def half(self, source: int) -> Held | None:
        """What is known of one 32-bit register or constant."""
        if source < 0:
            mask = self.mask(source)
            return None if source == UNKNOWN else (EITHER, *mask)
        if source == EXEC_SOURCE or (source == EXEC_SOURCE + 1 and self.wide):
            return source - EXEC_SOURCE, self.on, self.on
        return self.held.get(source)

    def _nothing(self) -> Mask:
        return 0, self.everything

    def put(self, unit: int, mask: Mask) -> None:
        """A unit, or a pair, now holds a mask."""
        if mask == (0, self.everything):
            return
        self.held[unit] = 0, *mask
        if self.wide:
            self.held[unit + 1] = 1, *mask

    def forget(self, writes: int) -> None:
        """Units with these bits hold something else."""
        for key in [key for key in self.held if writes >> (key if isinstance(key, int) else key[0]) & 1]:
            del self.held[key]
        if self.moved is not None:
            for key in [key for key in self.moved if isinstance(key, tuple) and writes >> key[0] & 1]:
                del self.moved[key]
            for unit in _bits(writes & SCALAR_MASK):
                self.moved[unit] = -1

    def set(self, key: Key, held: Held | None, origin: int) -> None:
        """One register now holds this; `origin` is that of the same value before."""
        if held is not None:
            self.held[key] = held
        elif key in self.held:
            del self.held[key]
        if self.moved is not None:
            self.moved[key] = origin

    # EXEC

    def change_exec(self, certain: int, possible: int, learnt: Iterable[tuple[int, Told]]) -> list[int]:
        """Give EXEC a new value.

        Args:
            certain, possible: the new `Mask`.
            learnt: units and what tells of the mask there whether a lane becomes active: see `evaluate`.

        Returns:
            For each group before, the bit set of groups its lanes are in afterwards.
        """
        spread = [1 << group for group in range(self.count)]
        split = possible & ~certain
        self.on = possible
        if split:
            pairs = []
            for group in _bits(split):
                pairs.append((1 << group, 1 << self.count))
                spread[group] |= 1 << self.count
                self.count += 1
            self._rewrite(lambda mask: (_grow(mask[0], pairs), _grow(mask[1], pairs)))
            for unit, (on_without, on_with, off_without, off_with) in learnt:
                certain, possible = self.mask(unit)
                for stays, leaves in pairs:
                    if not on_without & stays:
                        certain |= stays
                    if not on_with & stays:
                        possible &= ~stays
                    if not off_without & stays:
                        certain |= leaves
                    if not off_with & stays:
                        possible &= ~leaves
                self.put(unit, (certain, possible))
        return spread

    def _rewrite(self, change: Callable[[Mask], Mask]) -> None:
        self.own = change(self.own)
        for key, (half, certain, possible) in self.held.items():
            self.held[key] = half, *change((certain, possible))

    # Fewer groups

    def signatures(self, keys: Iterable[Key]) -> tuple[list[int], list[int]]:
        """For each group, bit sets of the masks that hold all of it and of those that hold none, in the order of the
        keys. The first is `own`."""
        inside, outside = [0] * self.count, [0] * self.count
        everything = self.everything
        bit = 1
        for known in (self.own, *(self.held.get(key, (0, 0, everything))[1:] for key in keys)):
            certain, possible = known
            for group in range(self.count):
                if certain >> group & 1:
                    inside[group] |= bit
                elif not possible >> group & 1:
                    outside[group] |= bit
            bit <<= 1
        return inside, outside

    def compact(self, most: int) -> list[int]:
        """Take groups together that nothing tells apart, then those with the least difference until there are `most`.

        Returns:
            The new number of each group.
        """
        inside, outside = self.signatures(list(self.held))
        kinds: dict[tuple[int, int, int], int] = {}
        new = [
            kinds.setdefault((self.on >> group & 1, inside[group], outside[group]), len(kinds))
            for group in range(self.count)
        ]
        left = list(kinds)
        while len(left) > most:
            costs = [
                (_difference(a, b), i, j) for j, b in enumerate(left) for i, a in enumerate(left[:j]) if a[0] == b[0]
            ]
            if not costs:
                break
            _, i, j = min(costs)
            left[i] = left[i][0], left[i][1] & left[j][1], left[i][2] & left[j][2]
            del left[j]
            new = [i if group == j else group - (group > j) for group in new]
        if len(left) < self.count:
            self._renumber(new, len(left))
        return new

    def _renumber(self, new: list[int], count: int) -> None:
        members = [0] * count
        for old, group in enumerate(new):
            members[group] |= 1 << old

        def merge(mask: Mask) -> Mask:
            certain = sum(1 << group for group, olds in enumerate(members) if mask[0] & olds == olds)
            return certain, sum(1 << group for group, olds in enumerate(members) if mask[1] & olds)

        self._rewrite(merge)
        self.on = merge((self.on, self.on))[0]
        self.count = count

    # Joins

    @classmethod
    def nowhere(cls, like: LaneMasks, keep: int) -> LaneMasks:
        """A state without groups, to `join` others to: `like` first, which makes the groups.

        Args:
            keep: units of which something is to be known, where `like` knows it.
        """
        state = like.copy()
        state.count, state.on, state.own = 0, 0, (0, 0)
        state.held = {
            key: (half, 0, 0)
            for key, (half, _, _) in like.held.items()
            if keep >> (key if isinstance(key, int) else key[0]) & 1
        }
        return state

    def join(self, other: LaneMasks, vacant: int = 0) -> tuple[list[int], bool]:
        """Make this state hold also where control comes with `other`.

        Args:
            vacant: groups of `other` that have no lanes on that way.

        Returns:
            The group here of each group of `other`, -1 for vacant ones; and whether anything changed.
        """
        if self._includes(other):
            return [-1 if vacant >> group & 1 else group for group in range(self.count)], False
        changed = self._join_halves(other)
        keys = list(self.held)
        mine_in, mine_out = self.signatures(keys)
        their_in, their_out = other.signatures(keys)
        into: list[int] = []
        settled = self.count
        for group in range(other.count):
            if vacant >> group & 1:
                into.append(-1)
                continue
            inside, outside, active = their_in[group], their_out[group], other.on >> group & 1
            best, least = -1, (_NEVER, 0)
            for candidate in range(self.count):
                if self.on >> candidate & 1 != active:
                    continue
                a, b = mine_in[candidate], mine_out[candidate]
                lost = a & ~inside | b & ~outside
                loss = lost.bit_count() + (lost & 1) * _OWN_WEIGHT
                if candidate >= settled and not loss:  # do not blur a new group by one of which less is known
                    loss = (a ^ inside | b ^ outside).bit_count()
                if (loss, -(a | b).bit_count()) < least:
                    best, least = candidate, (loss, -(a | b).bit_count())
            if best < 0 or (least[0] and self.count < MOST_JOINED):
                best = self.count
                self.count += 1
                self.on |= active << best
                mine_in.append(inside)
                mine_out.append(outside)
                changed = True
            elif least[0]:
                mine_in[best] &= inside
                mine_out[best] &= outside
                changed = True
            into.append(best)
        if changed:
            self._from_signatures(keys, mine_in, mine_out)
        if self.moved is not None and other.moved != self.moved:
            changed |= self._join_moved(self.moved, other)
        return into, changed

    def _includes(self, other: LaneMasks) -> bool:
        """Whether everything known here is known there, of groups with the same numbers."""
        if self.count != other.count or self.on != other.on or self.own != other.own or self.moved != other.moved:
            return False
        there = other.held
        return all(there.get(key) == held for key, held in self.held.items())

    def _join_halves(self, other: LaneMasks) -> bool:
        """Forget registers that hold different halves here and there."""
        changed = False
        for key, (half, certain, possible) in list(self.held.items()):
            there = other.held.get(key)
            if there is None or there[0] in (half, EITHER):
                continue
            changed = True
            if half == EITHER:
                self.held[key] = there[0], certain, possible
            else:
                del self.held[key]
        return changed

    def _from_signatures(self, keys: list[Key], inside: list[int], outside: list[int]) -> None:
        def mask(bit: int) -> Mask:
            certain = sum(1 << group for group, held in enumerate(inside) if held >> bit & 1)
            return certain, sum(1 << group for group, held in enumerate(outside) if not held >> bit & 1)

        self.own = mask(0)
        everything = self.everything
        for number, key in enumerate(keys, 1):
            known = mask(number)
            if known == (0, everything):
                del self.held[key]
            else:
                self.held[key] = self.held[key][0], *known

    def _join_moved(self, moved: dict[Key, int], other: LaneMasks) -> bool:
        changed = False
        for key in {*moved, *(other.moved or ())}:
            mine = self.origin(key)
            if mine != -1 and mine != other.origin(key):
                moved[key] = -1
                changed = True
        return changed

    def origin(self, key: Key) -> int:
        """The unit whose value at the function's entry a register has, -1 if none."""
        own = key if isinstance(key, int) else -1
        return own if self.moved is None else self.moved.get(key, own)


def evaluate(table: int, one: Mask, other: Mask, everything: int) -> tuple[Mask, Told, Told]:
    """A bitwise operation.

    Args:
        table: its truth table: bit ``2 * a + b`` is the result for operand bits a and b.

    Returns:
        The result, and what it tells of the first and of the second operand.
    """
    a = everything & ~one[0], one[1]
    b = everything & ~other[0], other[1]
    where = [0, 0]
    about_a, about_b = [0, 0, 0, 0], [0, 0, 0, 0]
    for x in (0, 1):
        for y in (0, 1):
            both = a[x] & b[y]
            result = table >> 2 * x + y & 1
            where[result] |= both
            about_a[x if result else 2 + x] |= both
            about_b[y if result else 2 + y] |= both
    return (everything & ~where[0], where[1]), about_a, about_b


def renumber(groups: int, new: list[int]) -> int:
    """A bit set of groups in other numbers."""
    result = 0
    for group in _bits(groups):
        result |= 1 << new[group]
    return result


def _difference(a: tuple[int, int, int], b: tuple[int, int, int]) -> int:
    apart = a[1] ^ b[1] | a[2] ^ b[2]
    return apart.bit_count() + (apart & 1) * _OWN_WEIGHT


def _grow(mask: int, pairs: list[tuple[int, int]]) -> int:
    for old, new in pairs:
        if mask & old:
            mask |= new
    return mask


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
