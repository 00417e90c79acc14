"""Estimate of the most frequent targets of indirect calls, and registers for their addresses in loops.

It affects only the cost of dispatchers (`luthier.patch.layout.dispatchers`).
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Mapping

from msgspec import Struct, field

from luthier.isa.registers import EXEC, mask_of
from luthier.lifting import CallSite, Function, LiftedRepresentation
from luthier.lifting.addresses.pointers import pointers_in_data
from luthier.lifting.loops import LoopNest
from luthier.objects import CodeObject
from luthier.patch.payloads.code import ORIGINAL
from luthier.patch.registers.copies import unit_text

MOST_COMPARED = 6
"""Maximum number of functions with which pointers are compared sequentially."""

SYMBOLS = {"luthier_original": ORIGINAL}
"""Meaning of the symbols in `KeptAddresses.lines`."""
_Places = tuple[list[tuple[int, int]], list[tuple[int, int]]]
_in_data: weakref.WeakKeyDictionary[CodeObject, _Places] = weakref.WeakKeyDictionary()


class KeptAddresses(Struct, frozen=True):
    """SGPRs that hold addresses of original functions throughout a wave."""

    pairs: Mapping[int, int] = field(default_factory=dict)
    """Address of a function if the object is loaded at 0 -> first unit of two aligned SGPRs."""
    search: int | None = None
    """First unit of the registers for the search among many functions. Only scalar instructions use them."""

    @property
    def lines(self) -> list[str]:
        """Return assembly that sets the registers, with the symbols of `SYMBOLS`."""
        return [
            f"s_mov_b32 {unit_text(unit + half)}, luthier_original@abs32@{which}+{address}"
            for address, unit in self.pairs.items()
            for half, which in enumerate(("lo", "hi"))
        ]

    @property
    def units(self) -> int:
        """Return the bit set of all units."""
        firsts = [*self.pairs.values(), *([] if self.search is None else [self.search])]
        return mask_of(unit + half for unit in firsts for half in range(2))


def likely_functions(lifted: LiftedRepresentation) -> tuple[int, ...]:
    """Return the addresses of the functions to compare first: those whose pointers the kernel's code computes, or that
    are in variables that it uses (such as virtual tables), if these are few, then all others if there are few at
    all."""
    pointed = dict.fromkeys(pointed_functions(lifted))
    object = lifted.object
    if object not in _in_data:
        variables = sorted((one.address, one.address + one.size) for one in object.symbols if one.type == "object")
        _in_data[object] = sorted(pointers_in_data(object)), variables
    pointers, variables = _in_data[object]
    named: dict[int, None] = {}
    for reference in lifted.pc_references:
        if reference.kind == "pointer":
            named[reference.target] = None
        at = bisect.bisect_left(variables, (reference.target + 1, 0)) - 1
        if reference.kind == "data" and at >= 0 and reference.target < variables[at][1]:
            first, end = (bisect.bisect_left(pointers, (bound, 0)) for bound in variables[at])
            named |= dict.fromkeys(to for _, to in pointers[first:end])
    likely = {one: None for one in named if one in pointed}
    return next((tuple(some) for some in (likely | pointed, likely) if len(some) <= MOST_COMPARED), ())


def pointed_functions(lifted: LiftedRepresentation) -> list[int]:
    """Return the addresses of all functions of the object that calls by pointers may reach."""
    by_pointer = [call for function in lifted.functions for call in function.calls if call.pointer is not None]
    return sorted({lifted.functions[callee].entry for call in by_pointer for callee in call.callees})


def called_in_loops(lifted: LiftedRepresentation) -> bool:
    """Return whether calls by pointers are in loops, or in functions that are called in loops. Loops over lanes with
    different pointers do not count."""
    inside: set[int] = set()
    pending: list[tuple[Function, bool]] = [(function, False) for function in lifted.functions]
    while pending:
        function, always = pending.pop()
        nest = LoopNest(function)
        for call in function.calls:
            depth = nest.depth(lifted.block_of[call.index]) - (call.pointer is not None and _takes_turns(lifted, call))
            if not always and depth <= 0:
                continue
            if call.pointer is not None:
                return True
            new = set(call.callees) - inside
            inside |= new
            pending += [(lifted.functions[callee], True) for callee in new]
    return False


def _takes_turns(lifted: LiftedRepresentation, call: CallSite) -> bool:
    """Return whether the pointer of a call is that of one lane, with EXEC set to the lanes with the same pointer."""
    effects, pseudos = lifted.effect_table.code(lifted.columns), lifted.effect_table.pseudos
    changed = False
    for index in range(call.index - 1, lifted.blocks[lifted.block_of[call.index]].first - 1, -1):
        _, writes, _ = effects.together(index, index)
        changed |= bool(writes & mask_of(EXEC))
        if writes >> (call.pointer or 0) & 1:
            opcode = int(lifted.columns.opcode[index])
            return changed and opcode >= 0 and pseudos[opcode] == "V_READFIRSTLANE_B32"
    return False
