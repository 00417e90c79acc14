"""Forward analysis of functions that finds the targets of indirect jumps and calls, and PC-relative addresses.

Values of registers are followed natively (`runtime/native/lifting/address_search.h`), and so are the functions that are
found (`known_functions.h`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from luthier import _mc
from luthier.isa import Isa
from luthier.lifting.addresses.operations import roles
from luthier.lifting.addresses.slots import CodeSlots
from luthier.lifting.code.effort import Effort
from luthier.lifting.code.explore import Explorer
from luthier.lifting.code.graph import Graph
from luthier.lifting.instructions.effects import ANY_VECTOR, Columns, EffectTable, is_wide
from luthier.lifting.instructions.semantics import Mark

GETPC_SIZE = 4
"""Size in bytes of s_getpc_b64, which is a scalar operation with one operand on every target."""


Pointed = Callable[[int, str], tuple[str, list[int]] | None]
"""Returns for an incompletely known jump or call, given by instruction and reason, the reason with what is known of
pointers, and the functions that these lead to; None where they are not followed."""


def known_functions(isa: Isa, cache: _mc.SearchCache, entries: list[int]) -> _mc.KnownFunctions:
    """Return an empty set of known functions for a kernel that the hardware enters at some addresses, its own first."""
    return (_mc.WideKnownFunctions if is_wide(isa) else _mc.KnownFunctions)(cache, entries)


def search_cache(isa: Isa, most: int) -> _mc.SearchCache:
    """Return an empty cache, which keeps the analyses of `most` functions."""
    return (_mc.WideSearchCache if is_wide(isa) else _mc.SearchCache)(most)


class AddressAnalysis:
    """Analysis of the functions of one graph.

    Attributes:
        known: the functions analysed so far, and what they change. Receives the results.
        searches: number of functions in the last `run` of which no result was kept.
    """

    def __init__(
        self,
        columns: Columns,
        graph: Graph,
        table: EffectTable,
        explorer: Explorer,
        slots: CodeSlots,
        known: _mc.KnownFunctions,
        effort: Effort,
    ) -> None:
        self.columns = columns
        self.table = table
        self.known = known
        self._explorer, self._effort = explorer, effort
        code = columns.code
        computed = bool(np.count_nonzero(code.opcode < 0)) or (
            bool(graph.marks & Mark.ANY_REGISTER)
            and any(table.opcode(number).special in ANY_VECTOR for number in columns.opcodes)
        )
        self._native = table.code(columns).address_search(
            graph.native,
            code.addresses,
            code.size,
            roles(table.isa).of(code.opcode),
            explorer.text.filled,
            explorer.text.native,
            known,
            slots.value,
            slots.table,
            computed,
        )

    def run(self, entries: list[int], pointed: Pointed, *, alone: bool) -> bool:
        """Analyse functions, and explore the targets of their jumps and calls. Return whether any result changed.

        Args:
            alone: whether the graph is of these functions and those that they call directly.

        Raises:
            LiftError: the limit on the work is exceeded, or a target cannot be explored.
        """
        explorer, native = self._explorer, self._native
        try:
            problem = native.analyse(
                entries, alone, explorer.native, explorer.decode, pointed, self._followed(), self._effort.left
            )
        finally:
            self.searches = native.searches
            self._effort.spend(native.spent)
        explorer.check(problem)
        return native.changed

    def _followed(self) -> list[int] | None:
        """Return the instructions to follow, None for those that can matter."""
        return None
