"""Lanes for which a variable's location in the debug information is valid.

Compilers give locations by address alone, as if a wave were one thread. After an ``if``, the lanes of its ``else``
reach addresses whose location for a variable is a register that only other lanes have written. So a location is valid
for the lanes that were on when the wave entered its range, and for lanes that were valid when the wave left the range
and have been off ever since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luthier.objects.variables import DwarfVariable, Expression, Range

Keys = frozenset[int]
"""Numbers of locations."""
_NONE: Keys = frozenset()


class VariableLocations:
    """The locations of variables that hold for a part of their scope, by address.

    Args:
        addresses: addresses of instructions, ascending.
    """

    def __init__(self, variables: Iterable[DwarfVariable], addresses: Sequence[int]) -> None:
        self._numbers: dict[tuple[int, Expression], int] = {}
        self._variables = list(variables)
        """Kept alive, since `_numbers` uses their identities."""
        edges: dict[int, list[tuple[int, bool]]] = {}
        for variable in self._variables:
            for span, expression in variable.locations:
                if span is not None and expression:
                    number = self._numbers.setdefault((id(variable), expression), len(self._numbers))
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
        """Return the number of a variable's location; None: it holds for the whole scope."""
        return self._numbers.get((id(variable), expression))


class SelectedLanes:
    """Lanes for which locations are valid, in one call of a function by a wave. Bit 0 of masks is lane 0."""

    def __init__(self) -> None:
        self._holding: Keys = _NONE
        self._on = 0
        self._counts: dict[int, int] = {}
        """Valid lanes of the locations that hold."""
        self._left: dict[int, int] = {}
        """Valid lanes of locations that the wave has left: lanes that were off then and since."""

    def arrive(self, locations: Keys, on: int) -> None:
        """Record the next instruction: the locations that hold before it, and the active lanes."""
        if on != self._on:
            self._on = on
            self._left = {key: lanes & ~on for key, lanes in self._left.items() if lanes & ~on}
        if locations is self._holding:
            return
        for key in self._holding - locations:
            if rest := self._counts.pop(key) & ~on:
                self._left[key] = rest
        for key in locations - self._holding:
            self._counts[key] = self._left.pop(key, 0) | on
        self._holding = locations

    def of(self, key: int, locations: Keys, on: int) -> int:
        """Return the valid lanes of a location where the wave is now, which may be one instruction further."""
        if key in self._holding and key in locations:
            return self._counts[key]
        return self._left.get(key, 0) | on
