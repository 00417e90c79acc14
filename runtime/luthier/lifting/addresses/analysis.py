"""Forward analysis of one function that finds the targets of indirect jumps and calls, and PC-relative addresses.

Values of registers are followed natively (`runtime/native/lifting/address_search.h`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from luthier.isa.registers import SCALAR_MASK
from luthier.lifting.addresses.operations import roles
from luthier.lifting.code.effort import Effort
from luthier.lifting.code.explore import Resolution
from luthier.lifting.code.graph import Graph
from luthier.lifting.code.text import Text
from luthier.lifting.instructions.effects import ANY_VECTOR, Columns, EffectTable, unit_bytes
from luthier.lifting.instructions.semantics import Mark

GETPC_SIZE = 4
"""Size in bytes of s_getpc_b64, which is a scalar operation with one operand on every target."""


class GetpcReference(NamedTuple):
    """The addresses of an s_getpc_b64 and of its two additions, and the 64-bit offset that they add."""

    getpc: int
    low: int
    high: int
    offset: int


class FunctionAddresses(Struct, frozen=True, gc=False):
    """Results of the analysis of one function. Instructions are given as addresses."""

    resolutions: dict[int, Resolution]
    """By address of the jump or call."""
    references: set[GetpcReference]
    computed: set[int]
    """s_getpc_b64 whose value is changed in ways other than adding two literals."""
    escapes: set[int]
    """s_getpc_b64 whose incomplete address has uses that are not followed."""
    values: set[int]
    """s_getpc_b64 whose complete address has uses other than jumps, such as stores."""
    clobbers: int
    """Scalar units that may not hold their entry value when the function returns."""
    asked: set[int | None]
    """Addresses of the functions whose `World.clobbers` the result depends on."""


class Clobbers(dict[int | None, bytes]):
    """Address of a function, or None for an unknown one -> scalar units that it may change, as `unit_bytes`.

    A function that has not been analysed yet counts as one that never returns: the result only ever grows.
    """

    NOTHING = unit_bytes(0)

    def __init__(self) -> None:
        super().__init__({None: unit_bytes(SCALAR_MASK)})

    def __missing__(self, function: int | None) -> bytes:
        return self.NOTHING


class World(Struct, frozen=True):
    """Facts about the rest of the object for the analysis of one function.

    Attributes:
        clobbers: see `Clobbers`.
        slot_value: address of a 64-bit word in memory -> code address that it certainly holds at run time, or None.
        table: address in memory -> address and size of the constant table of code addresses that contains it, or None.
        text: the executable code.
    """

    clobbers: Clobbers
    slot_value: Callable[[int], int | None]
    table: Callable[[int], tuple[int, int] | None]
    text: Text


class AddressAnalysis:
    """Analysis of the functions of one graph."""

    def __init__(self, columns: Columns, graph: Graph, table: EffectTable, world: World, effort: Effort) -> None:
        self.columns = columns
        self.graph = graph
        self.table = table
        self._effort = effort
        code = columns.code
        computed = bool(np.count_nonzero(code.opcode < 0)) or (
            bool(graph.marks & Mark.ANY_REGISTER)
            and any(table.opcode(number).special in ANY_VECTOR for number in columns.opcodes)
        )
        self.vectors = table.vector_universe if computed else 0
        """The vector units of the kernel if some instruction may access any of them, otherwise 0."""
        self._native = table.code(columns).address_search(
            graph.native,
            code.addresses,
            code.size,
            roles(table.isa).of(code.opcode),
            world.text.filled,
            {
                number: (jump.targets, jump.resolution is not None and bool(jump.resolution.reason))
                for number, jump in graph.jumps.items()
                if graph.exits[number] == "call"
            },
            world.text.native,
            world.clobbers.__getitem__,
            world.slot_value,
            world.table,
        )

    def run(self, entries: Iterable[int], links: Iterable[int]) -> FunctionAddresses:
        """Analyse the function that is entered at these addresses, with its return address in the pairs `links`.

        Raises:
            LiftError: the limit on the work is exceeded.
        """
        roots = [self.graph.native.at(entry) for entry in entries]
        resolutions, references, computed, escapes, values, clobbers, asked, spent = self._native.run(
            roots, list(links), self._effort.left, self._followed()
        )
        self._effort.spend(spent)
        return FunctionAddresses(
            {address: Resolution(*fields) for address, fields in resolutions.items()},
            {GetpcReference(*fields) for fields in references},
            computed,
            escapes,
            values,
            clobbers,
            asked,
        )

    def _followed(self) -> list[int] | None:
        """Return the instructions to follow, None for those that can matter."""
        return None
