"""Calls by pointers: a pointer to a function is the address of the original, wherever it comes from, and each patched
kernel has its own copy of the function. So the call goes to a *dispatcher*, which compares the pointer with the
originals' addresses and goes on to the copy, or else where the pointer says.

Pointers in memory stay as they are: the host, other kernels and unpatched code may have them, compare and call them. A
dispatcher needs no register, since it compares halves with literals that the loader fills in, and leaves SCC as it was,
since there are two of each, one for either value. Where counters are in registers, what goes on to code that nobody
knows gives them to memory first (`luthier.patch.leaving`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from luthier.isa import Isa
from luthier.isa.registers import VCC_LO
from luthier.lifting import LiftedRepresentation
from luthier.patch.copies import unit_text
from luthier.patch.emission import BoundPayload, Reference
from luthier.patch.leaving import LeavingCode

ORIGINAL = "luthier.original"
"""Symbol of what is added to the original's virtual addresses where it is loaded."""
_LITERAL = 0x7EAD1234
"""What stands for half of an address: a number that no shorter encoding has."""


@dataclass(frozen=True)
class Dispatcher:
    """Code that some calls go to instead of where a register pair says."""

    callers: tuple[int, ...]
    """Instructions."""
    code: bytes
    references: tuple[Reference, ...]
    """Halves of the originals' addresses, and what the way out has."""
    branches: tuple[tuple[int, int], ...]
    """Byte offset of each branch to a copy, whose offset is not known yet, and the address of the original."""
    instructions: int


def dispatchers(lifted: LiftedRepresentation, leaving: LeavingCode | None = None) -> list[Dispatcher]:
    """What the kernel's calls by pointers need: one for each register pair and set of functions.

    Args:
        leaving: what goes on to code that nobody knows, if it is more than a jump.
    """
    callers: dict[tuple[int, int | None, tuple[int, ...]], dict[int, None]] = {}
    for function in lifted.functions:
        for call in function.calls:
            if call.pointer is not None and (call.callees or (leaving is not None and not call.known)):
                link = call.link if leaving is not None else None
                callers.setdefault((call.pointer, link, call.callees), {})[call.index] = None
    found = []
    for (pair, link, callees), indices in callers.items():
        onward = None if leaving is None else leaving.code(pair, link, [*indices])
        entries = [lifted.functions[callee].entry for callee in callees]
        found.append(_dispatcher(lifted.isa, pair, entries, [*indices], onward))
    return found


def _dispatcher(
    isa: Isa, pair: int, entries: Sequence[int], callers: Sequence[int], onward: BoundPayload | None
) -> Dispatcher:
    low, high = unit_text(pair), unit_text(pair + 1)
    both = "vcc" if pair == VCC_LO else f"s[{pair}:{pair + 1}]"
    code = b""
    instructions = 0
    references: list[Reference] = []
    branches: list[tuple[int, int]] = []

    def add(text: str) -> None:
        nonlocal code, instructions
        made = isa.assemble(text).instructions
        code += made.code
        instructions += len(made)

    def compare(operation: str, half: str, entry: int) -> None:
        add(f"{operation} {half}, {_LITERAL:#x}")
        references.append(Reference(len(code) - 4, ORIGINAL, entry, half == high, 0))

    add("s_cbranch_scc0 0")
    for operation, same, other in (("s_cmp_eq_u32", "scc1", "scc0"), ("s_cmp_lg_u32", "scc0", "scc1")):
        for entry in entries:
            compare(operation, low, entry)
            add(f"s_cbranch_{other} 3")  # to the next function
            compare(operation, high, entry)
            add(f"s_cbranch_{same} 0")
            branches.append((len(code) - 4, entry))
        add(f"{operation} {low}, {low}")
        add(f"s_setpc_b64 {both}" if onward is None else "s_branch 0")
    to_other = (len(code) // 2 - 2) // 4
    made = bytearray(code)
    struct.pack_into("<h", made, 0, to_other)
    if onward is not None:  # behind both halves, of which the first must get over the second
        struct.pack_into("<h", made, 4 * to_other, to_other)
        references += [replace(field, offset=len(made) + field.offset) for field in onward.references]
        made += onward.code
        instructions += onward.instructions
    return Dispatcher(tuple(callers), bytes(made), tuple(references), tuple(branches), instructions)
