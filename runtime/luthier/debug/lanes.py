"""Lanes for which the source's variables are where the debug information says.

Compilers say by address alone where a variable is, as if a wave were one thread. Behind an ``if``, the lanes of its
``else`` come to addresses at which a variable is said to be in a register that other lanes have written. So a location
counts for the lanes that were on when the wave came to where the location holds, and of those that were off, for the
ones that were off all the time since they had been where it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luthier.objects.variables import DwarfVariable, Expression, Range

Keys = frozenset[int]
"""Locations, by number."""
_NONE: Keys = frozenset()


class VariableLocations:
    """The locations of variables that hold for some of their scope, by address.

    Args:
        addresses: of instructions, ascending.
    """

    def __init__(self, variables: Iterable[DwarfVariable], addresses: Sequence[int]) -> None:
        self._numbers: dict[tuple[int, Expression], int] = {}
        self._variables = list(variables)
        """Kept, since `_numbers` has their identities."""
        edges: dict[int, list[tuple[int, bool]]] = {}
        for one in self._variables:
            for span, expression in one.locations:
                if span is not None and expression:
                    number = self._numbers.setdefault((id(one), expression), len(self._numbers))
                    self._add(edges, span, number)
        self.at: dict[int, Keys] = {}
        """Locations that hold at an instruction."""
        if edges:
            self._sweep(edges, addresses)

    @staticmethod
    def _add(edges: dict[int, list[tuple[int, bool]]], span: Range, number: int) -> None:
        edges.setdefault(span[0], []).append((number, True))
        edges.setdefault(span[1], []).append((number, False))

    def _sweep(self, edges: dict[int, list[tuple[int, bool]]], addresses: Sequence[int]) -> None:
        counts: dict[int, int] = {}
        ahead = sorted(edges, reverse=True)
        now = _NONE
        for address in addresses:
            changed = False
            while ahead and ahead[-1] <= address:
                for number, begins in edges[ahead.pop()]:
                    counts[number] = counts.get(number, 0) + (1 if begins else -1)
                changed = True
            if changed:
                now = frozenset(number for number, count in counts.items() if count)
            self.at[address] = now

    def number(self, variable: DwarfVariable, expression: Expression) -> int | None:
        """Return the number of a location of a variable; None for one that holds for all of its scope."""
        return self._numbers.get((id(variable), expression))


class SelectedLanes:
    """Lanes that locations count for, in one call of a function by a wave. Masks have bit 0 for lane 0."""

    def __init__(self) -> None:
        self._here: Keys = _NONE
        self._on = 0
        self._counts: dict[int, int] = {}
        """Lanes of locations that hold,"""
        self._left: dict[int, int] = {}
        """and those that were off, and remained so, when the wave went where a location does not hold."""

    def arrive(self, here: Keys, on: int) -> None:
        """Take note of an instruction that is next: which locations hold before it, and which lanes are on."""
        if on != self._on:
            self._on = on
            self._left = {key: lanes & ~on for key, lanes in self._left.items() if lanes & ~on}
        if here is self._here:
            return
        for key in self._here - here:
            if rest := self._counts.pop(key) & ~on:
                self._left[key] = rest
        for key in here - self._here:
            self._counts[key] = self._left.pop(key, 0) | on
        self._here = here

    def of(self, key: int, here: Keys, on: int) -> int:
        """Return the lanes that a location counts for where the wave is now, which may be one instruction further."""
        if key in self._here and key in here:
            return self._counts[key]
        return self._left.get(key, 0) | on
