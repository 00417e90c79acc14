"""Programs with functions that have several callers, and the same without calls.

Each call is the function's code there, with instructions in the place of call and return that write and read the same
registers: what is found in one must be found in the other.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from luthier.lifting import lift
from luthier.lifting.representation import LiftedRepresentation
from wait_kernels import kernel

Line = tuple[str, str]
"""An instruction, and what it is known by; labels are known by nothing."""
Draw = Callable[[random.Random], list[str]]
"""Gives one or more instructions."""

LINKS = {"f": "s[30:31]", "g": "s[32:33]"}


class Program:
    """A kernel that calls a function from several places, which calls another one, as does the kernel.

    Args:
        draw: gives the instructions.
        body: how many draws are in each part of a function.
        between: and between two calls.
        calls: the kernel's, at least 4.
    """

    def __init__(self, seed: int, draw: Draw, body: int = 7, between: int = 6, calls: int = 6) -> None:
        chosen = random.Random(seed)

        def straight(name: str, count: int) -> list[Line]:
            lines = [line for _ in range(count) for line in draw(chosen)]
            return [(line, f"{name}{number}") for number, line in enumerate(lines)]

        self._copies = 0
        self._bodies = {name: [straight(f"{name}{part}-", body) for part in range(3)] for name in "fg"}
        self._parts = [straight(f"k{part}-", between) for part in range(calls + 1)]

    def lifted(self, target: str, *, inline: bool) -> tuple[LiftedRepresentation, dict[int, str]]:
        """The kernel, and by virtual address what its instructions are known by."""
        text, known = self._text(inline=inline)
        lifted = lift(kernel(target, text), "k")
        addresses = [at for at, block in zip(lifted.columns.address, lifted.block_of, strict=True) if block >= 0]
        return lifted, dict(zip(addresses, known, strict=True))

    def _text(self, *, inline: bool) -> tuple[str, list[str]]:
        lines: list[Line] = []
        for number, part in enumerate(self._parts):
            lines += part
            if number + 1 < len(self._parts):
                lines += self._call("g" if number == 3 else "f", f"call{number}", inline=inline)
        lines += [("s_endpgm", "end")]
        if not inline:
            for name in "fg":
                lines += [(f"{'=functions= ' if name == 'f' else ''}{name}:", "")]
                lines += [*self._body(name, inline=False), (f"s_setpc_b64 {LINKS[name]}", f"{name}-return")]
        return "; ".join(line for line, _ in lines), [known for _, known in lines if known]

    def _body(self, name: str, *, inline: bool) -> list[Line]:
        first, skipped, last = self._bodies[name]
        self._copies += 1
        label = f"over{self._copies}"
        nested = self._call("g", "f-call", inline=inline) if name == "f" else []
        branch = (f"s_cbranch_scc1 {label}", f"{name}-branch")
        return [*first, branch, *skipped, *nested, (f"{label}:", ""), *last]

    def _call(self, name: str, known: str, *, inline: bool) -> list[Line]:
        link = LINKS[name]
        if not inline:
            return [(f"s_call_b64 {link}, {name}", known)]
        returns = f"s_cmp_eq_u64 {link}, 0", f"{name}-return"
        return [(f"s_mov_b64 {link}, 0", known), *self._body(name, inline=True), returns]


def is_a_way(lifted: LiftedRepresentation, path: tuple[int, ...]) -> bool:
    """Whether control can go from block to block so, by virtual addresses: from a function it comes back to where that
    was called, as far as the way shows."""
    block_at = {lifted.columns.address[block.first]: block for block in lifted.blocks}
    calls = {lifted.block_of[call.index]: call for function in lifted.functions for call in function.calls}
    back = {call.return_block for call in calls.values()}
    stack: list[int | None] = []
    for start, end in itertools.pairwise(path):
        block, following = block_at[start], block_at[end].index
        if block.index in calls:
            entries = {lifted.functions[callee].entry_block for callee in calls[block.index].callees}
            stack.append(calls[block.index].return_block)
            fine = following in entries
        elif block.exit == "return":
            fine = following == stack.pop() if stack else following in back
        else:
            fine = following in {edge.to for edge in block.successors}
        if not fine:
            return False
    return True
