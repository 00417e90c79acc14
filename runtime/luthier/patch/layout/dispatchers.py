"""Dispatchers of indirect calls. A pointer to a function is always the address of the original, but each patched kernel
has its own copy of the function. The call therefore goes to a *dispatcher*, which compares the pointer with the
addresses of the originals and continues at the copy, or otherwise at the pointer's target.

Pointers in memory do not change, since the host, other kernels and unpatched code may hold, compare and call them. A
dispatcher needs no register: it compares halves with literals that the loader fills in. It preserves SCC, because there
are two versions of the comparisons, one for each value, unless SCC can be recomputed. If counters are in registers,
they are added to memory before control continues at unknown code (`luthier.patch.counters.leaving`), and dispatchers
may have registers (`luthier.patch.payloads.likely_targets`) with addresses, and for the search among many functions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.isa import Isa
from luthier.isa.registers import EXEC, SCC, UNTRACKED, VCC_LO, mask_of
from luthier.lifting import LiftedRepresentation
from luthier.patch.counters.leaving import LeavingCode
from luthier.patch.payloads.code import ORIGINAL, BoundPayload, PayloadRelocation
from luthier.patch.payloads.likely_targets import MOST_COMPARED, KeptAddresses, likely_functions
from luthier.patch.registers.copies import unit_text

_LITERAL = 0x7EAD1234
"""Placeholder for half of an address: a literal without a shorter encoding."""

_NOT_HALVED = 3
"""Maximum number of functions for which sequential comparison is faster than binary search."""


class Dispatcher(Struct, frozen=True):
    """Code that replaces the target of some indirect calls."""

    callers: tuple[int, ...]
    """Call instructions."""
    code: bytes
    references: tuple[PayloadRelocation, ...]
    """Halves of the originals' addresses, and references of the path to unknown code."""
    branches: tuple[tuple[int, int], ...]
    """Byte offset of each branch to a copy, which is not filled in yet, and the address of the original."""
    instructions: int


def dispatchers(lifted: LiftedRepresentation, leaving: LeavingCode | None = None) -> list[Dispatcher]:
    """Return the dispatchers that the kernel's indirect calls need.

    There is one for each register pair, set of functions and way to recompute SCC.

    Args:
        leaving: code that continues at unknown code, if it is more than a jump.
    """
    callers: dict[tuple[int, int | None, tuple[int, ...], bytes | None], dict[int, None]] = {}
    for function in lifted.functions:
        for call in function.calls:
            if call.pointer is not None and (call.callees or (leaving is not None and not call.known)):
                link = call.link if leaving is not None else None
                entries = tuple(lifted.functions[callee].entry for callee in call.callees)
                again = _scc_again(lifted, call.index, entries) if leaving is not None and leaving.alone else None
                callers.setdefault((call.pointer, link, entries, again), {})[call.index] = None
    likely = likely_functions(lifted) if callers else ()
    made = []
    for (pair, link, entries, again), indices in callers.items():
        first = [entry for entry in likely if entry in entries]
        writer = _DispatcherWriter(lifted.isa, pair, leaving)
        writer.write(first, [entry for entry in entries if entry not in first], again)
        if leaving is not None:
            writer.go_on(leaving.code(pair, link, [*indices]))
        code, references, branches = bytes(writer.code), tuple(writer.references), tuple(writer.branches)
        made.append(Dispatcher(tuple(indices), code, references, branches, writer.instructions))
    return made


def _scc_again(lifted: LiftedRepresentation, call: int, entries: Sequence[int]) -> bytes | None:
    """Return an instruction that recomputes SCC as before a call; None if there is none, or a function reads SCC.

    Args:
        entries: addresses of the functions.
    """
    for entry in entries:
        index = lifted.index_at(entry)
        if index is None or lifted.liveness.live_before(index).all_bits >> SCC & 1:
            return None
    effects, pseudos = lifted.effect_table.code(lifted.columns), lifted.effect_table.pseudos
    since = effects.together(call, call)[1]
    for index in range(call - 1, lifted.blocks[lifted.block_of[call]].first - 1, -1):
        reads, writes, _ = effects.together(index, index)
        if not writes >> SCC & 1:
            since |= writes
            continue
        opcode = int(lifted.columns.opcode[index])
        if opcode < 0:
            return None
        if pseudos[opcode].startswith("S_AND_SAVEEXEC_B") and not since & mask_of(EXEC):
            mask = "u64 exec" if lifted.wave_size == 64 else "u32 exec_lo"
            return lifted.isa.assemble(f"s_cmp_lg_{mask}, 0").instructions.code
        code = lifted.code.bytes_of(index)
        compares = pseudos[opcode].startswith(("S_CMP_", "S_CMPK_", "S_BITCMP")) and writes == 1 << SCC
        # The loader writes into literals.
        return code if compares and len(code) == 4 and not reads & (since | writes | 1 << UNTRACKED) else None
    return None


class _DispatcherWriter:
    """Writes one dispatcher.

    Attributes:
        code, references, branches, instructions: those of the dispatcher.
    """

    def __init__(self, isa: Isa, pair: int, leaving: LeavingCode | None) -> None:
        self.code, self.instructions = bytearray(), 0
        self.references: list[PayloadRelocation] = []
        self.branches: list[tuple[int, int]] = []
        self._isa, self._leaving = isa, leaving
        self._kept = KeptAddresses() if leaving is None else leaving.kept
        self._low, self._high = unit_text(pair), unit_text(pair + 1)
        self._both = "vcc" if pair == VCC_LO else f"s[{pair}:{pair + 1}]"

    def write(self, likely: Sequence[int], remaining: Sequence[int], again: bytes | None) -> None:
        """Write the comparisons with the functions' addresses.

        Args:
            likely: addresses to compare first.
            remaining: other addresses.
            again: instruction that recomputes SCC if no function matches; None if SCC must be preserved throughout.
        """
        if self._kept.search is None or len(remaining) <= MOST_COMPARED or max(remaining) - min(remaining) >= 1 << 31:
            likely, remaining = [*likely, *remaining], []
        if again is not None:
            self._look_up(likely, remaining, "eq")
            self.code += again
            self.instructions += 1
            return
        fork = self._add("s_cbranch_scc0 0")
        self._look_up(likely, remaining, "eq")
        self._add(f"s_cmp_eq_u32 {self._low}, {self._low}")
        end = self._add(f"s_setpc_b64 {self._both}" if self._leaving is None else "s_branch 0")
        self._lead(fork)
        self._look_up(likely, remaining, "lg")
        self._add(f"s_cmp_lg_u32 {self._low}, {self._low}")
        if self._leaving is None:
            self._add(f"s_setpc_b64 {self._both}")
        else:
            self._lead(end)

    def go_on(self, onward: BoundPayload) -> None:
        """Append the code that runs if no function matches."""
        self.references += [replace(field, offset=len(self.code) + field.offset) for field in onward.references]
        self.code += onward.code
        self.instructions += onward.instructions

    def _look_up(self, likely: Sequence[int], remaining: Sequence[int], operation: str) -> None:
        """Write comparisons that fall through if no address is equal.

        Args:
            operation: "eq" or "lg": SCC is 1 or 0 if an address is equal.
        """
        same, other = ("scc1", "scc0") if operation == "eq" else ("scc0", "scc1")
        kept, low = self._kept.pairs, self._kept.search
        for entry in likely:
            if entry in kept:
                self._add(f"s_cmp_{operation}_u64 {self._both}, s[{kept[entry]}:{kept[entry] + 1}]")
            else:
                self._with_half(f"s_cmp_{operation}_u32 {self._low}", entry, high=False)
                self._add(f"s_cbranch_{other} 3")  # to the next function
                self._with_half(f"s_cmp_{operation}_u32 {self._high}", entry, high=True)
            self.branches.append((self._add(f"s_cbranch_{same} 0"), entry))
        if not remaining or low is None:
            return
        begin = min(remaining)
        # Compare distances from the first function, which are unique even for addresses with equal halves.
        self._with_half(f"s_sub_u32 {unit_text(low)}, {self._low}", begin, high=False)
        self._with_half(f"s_subb_u32 {unit_text(low + 1)}, {self._high}", begin, high=True)
        for miss in self._search(sorted(remaining), begin, low, operation, same):
            self._lead(miss)

    def _search(self, entries: Sequence[int], begin: int, low: int, operation: str, same: str) -> list[int]:
        """Write a binary search for a distance among those of functions.

        Args:
            begin: origin of the distances.
            low: first unit of the SGPRs with the pointer's distance.

        Returns:
            Byte offsets of branches to take if there is no match.
        """
        if len(entries) <= _NOT_HALVED:
            for entry in entries:
                self._add(f"s_cmp_{operation}_u64 s[{low}:{low + 1}], {entry - begin:#x}")
                self.branches.append((self._add(f"s_cbranch_{same} 0"), entry))
            return [self._add("s_branch 0")]
        middle = len(entries) // 2
        self._add(f"s_cmp_lt_u32 {unit_text(low)}, {entries[middle] - begin:#x}")
        to_upper = self._add("s_cbranch_scc0 0")
        lower = self._search(entries[:middle], begin, low, operation, same)
        self._lead(to_upper)
        return lower + self._search(entries[middle:], begin, low, operation, same)

    def _add(self, text: str) -> int:
        """Write an instruction, and return its byte offset."""
        place = len(self.code)
        made = self._isa.assemble(text).instructions
        self.code += made.code
        self.instructions += len(made)
        return place

    def _with_half(self, text: str, entry: int, *, high: bool) -> None:
        """Write an instruction whose last operand is half of the address of an original."""
        self._add(f"{text}, {_LITERAL:#x}")
        self.references.append(PayloadRelocation(len(self.code) - 4, ORIGINAL, entry, high, 0))

    def _lead(self, branch: int) -> None:
        """Set the target of the branch at a byte offset to the current end of the code."""
        struct.pack_into("<h", self.code, branch, (len(self.code) - branch) // 4 - 1)
