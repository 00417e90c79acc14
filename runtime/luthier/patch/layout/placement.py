"""Placement of a kernel's instructions and payloads, with branches and calls that reach their targets."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier.errors import LuthierError, PatchError
from luthier.isa import NO_TARGET
from luthier.lifting import LiftedRepresentation
from luthier.patch.layout.dispatchers import Dispatcher
from luthier.patch.layout.slots import Branch, SlotLayout, lay_out, next_hop
from luthier.patch.payloads.code import OFFSET_3F
from luthier.patch.payloads.entry import BRANCH_SIZE, EntryCode
from luthier.patch.payloads.zones import Zone
from luthier.patch.splicing.splicer import Spliced

ENTRY_ALIGNMENT = 256
"""Alignment of kernel entry points (AMDGPUUsage, "Code Object V3 Kernel Descriptor")."""
PREFETCH_PADDING = 256
"""Bytes after the code that instruction prefetch may access."""


class PcLiteral(NamedTuple):
    """The literals of two additions to the result of s_getpc_b64: the halves of ``target - pc``."""

    low: int
    """Byte offset of the field in the new code."""
    high: int
    pc: int
    """Byte offset in the new code of the result of s_getpc_b64."""
    target: int
    """Byte offset from `base`."""
    base: Literal["code", "memory"] | int
    """The beginning of the new code, virtual address 0, or a table's copy (index in `PatchedKernel.tables`)."""
    address: int
    """Virtual address of the first addition in the original, for errors."""


class SharedPayloads(NamedTuple):
    """Shared payloads, which are placed once, and their callers."""

    bodies: NDArray[np.int64]
    """[b] position of each shared payload in `Spliced.payloads`."""
    callers: NDArray[np.int64]
    """[c] position of each caller among the spliced payloads."""
    places: NDArray[np.int64]
    """[c] byte offset of the call in the caller."""
    callees: NDArray[np.int64]
    """[c] index of the called body."""

    def links(self, spliced: Spliced) -> NDArray[np.int64]:
        """Return [b] the first SGPR of the pair for the return address of each body, which all its calls share."""
        if not len(self.callers):
            return self.callers
        _, first = np.unique(self.callees, return_index=True)
        calls = zip(spliced.placements.numbers[self.callers[first]].tolist(), self.places[first].tolist(), strict=True)
        words = [int.from_bytes(spliced.payloads[number].code[at : at + 4], "little") for number, at in calls]
        return np.array(words, np.int64) >> 16 & (1 << 7) - 1  # SDST of SOPK


def calls_of(spliced: Spliced) -> SharedPayloads:
    """Return the calls of shared payloads."""
    if not spliced.called:
        return SharedPayloads(*(np.zeros(0, np.int64) for _ in range(4)))
    body = np.full(len(spliced.payloads), -1)
    place = np.zeros(len(spliced.payloads), np.int64)
    for number, callee in spliced.called.items():
        body[number] = callee
        place[number] = spliced.payloads[number].call or 0
    callers = np.flatnonzero(body[spliced.placements.numbers] >= 0)
    numbers = spliced.placements.numbers[callers]
    bodies, callees = np.unique(body[numbers], return_inverse=True)
    return SharedPayloads(bodies, callers, place[numbers], callees)


class _Jump(NamedTuple):
    """A branch or call with a 16-bit word offset in the new code."""

    slot: int
    target: int
    """Target slot."""
    replacement: bytes | None
    """New encoding without its offset, if an indirect jump becomes a direct one."""


class Placement:
    """The placement of a kernel's instructions and payloads.

    Args:
        indices, zones, sizes: [n] each payload's instruction, place relative to it (`Zone`), and size in bytes.
            Payloads at one place are in the order given.
        entry: code before the kernel's first instruction.
        replaced: instruction -> the bytes that replace it.
        calls: calls of shared payloads.
        bodies: [b] size in bytes of each shared payload.
        by_pointer: [d] targets of calls by pointers.

    Attributes:
        slots: [m] instruction index of each slot, in address order: the reachable instructions. They are followed by a
            slot for each stub (spliced code and an s_branch), for each shared payload, and for each dispatcher.
        payloads: [n] byte offset of each payload in the new code.
        bodies: [b] byte offset of each shared payload.
        dispatchers: [d] byte offset of each dispatcher.

    Raises:
        PatchError: a payload is on the taken edge of an instruction that encodes no target.
    """

    def __init__(
        self,
        lifted: LiftedRepresentation,
        indices: NDArray[np.int64],
        zones: NDArray[np.int64],
        sizes: NDArray[np.int64],
        entry: EntryCode,
        replaced: Mapping[int, bytes],
        calls: SharedPayloads,
        bodies: NDArray[np.int64],
        by_pointer: Sequence[Dispatcher],
    ) -> None:
        self.lifted = lifted
        self._entry = entry
        code = lifted.code
        self.slots = np.flatnonzero(lifted.reached)
        self._slot_of = np.full(len(code) + 1, -1)
        self._slot_of[self.slots] = np.arange(len(self.slots))
        self._slot_at = {address: slot for slot, address in enumerate(code.addresses[self.slots].tolist())}
        self._replaced = {int(self._slot_of[index]): new for index, new in replaced.items()}
        self.old_sizes = code.size[self.slots].astype(np.int64)
        for slot_, new in self._replaced.items():
            self.old_sizes[slot_] = len(new)
        taken = zones == int(Zone.TAKEN)
        on_edges: list[int] = indices[taken].tolist()
        stubs = {index: len(self.slots) + n for n, index in enumerate(sorted(set(on_edges)))}
        dispatcher_slots = len(self.slots) + len(stubs) + len(bodies) + np.arange(len(by_pointer))
        self._by_pointer = by_pointer
        jumps = self._find_jumps(dispatcher_slots.tolist())
        self._jumps = self._by_way_of(stubs, jumps)
        slot = self._slot_of[indices]
        if on_edges:
            slot[taken] = [stubs[index] for index in on_edges]
        behind = zones == int(Zone.BEHIND)
        body_slots = len(self.old_sizes) + len(stubs) + np.arange(len(bodies))
        dispatching = np.array([len(one.code) for one in by_pointer], np.int64)
        self.old_sizes = np.concatenate([self.old_sizes, np.full(len(stubs), BRANCH_SIZE), bodies, dispatching])
        whole = self.old_sizes + np.bincount(slot, sizes, len(self.old_sizes)).astype(np.int64)
        before = np.bincount(slot, np.where(behind, 0, sizes), len(self.old_sizes)).astype(np.int64)

        place = 2 * slot + behind
        order = place.argsort(kind="stable")
        ordered, in_order = place[order], sizes[order]
        starts = in_order.cumsum() - in_order
        first = np.ones(len(order), bool)
        first[1:] = ordered[1:] != ordered[:-1]
        from_instruction = np.where(behind, self.old_sizes[slot], -before[slot])
        from_instruction[order] += starts - starts[first][np.cumsum(first) - 1]
        self._calls = np.zeros((0, 3), np.int64)
        """Each row is a `Branch`."""
        if len(calls.callers) or by_pointer:
            call_at = from_instruction[calls.callers] + calls.places
            dispatched = [
                Branch(slot, self._slot_at[entry], place)
                for slot, one in zip(dispatcher_slots.tolist(), by_pointer, strict=True)
                for place, entry in one.branches
            ]
            called = np.stack([slot[calls.callers], body_slots[calls.callees], call_at], axis=1)
            self._calls = np.concatenate([called, np.array(dispatched, np.int64).reshape(-1, 3)])
        self.layout = self._lay_out(whole, before, len(body_slots) + len(stubs) + len(dispatcher_slots))
        self.payloads = self.layout.instruction[slot] + from_instruction
        self.bodies = self.layout.instruction[body_slots]
        self.dispatchers = self.layout.instruction[dispatcher_slots]

    def moved(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the arrays of `PatchedKernel.moved`."""
        count = len(self.slots)
        originals = np.asarray(self.lifted.code.addresses[self.slots], np.int64)
        return self.layout.instruction[:count].copy(), self.layout.entry[:count].copy(), originals

    def offset_of(self, address: int) -> int:
        """Return the byte offset in the new code of the instruction that was at `address`.

        If payloads precede it, that of the first one.
        """
        slot = self._slot_at.get(address)
        if slot is None:
            raise PatchError("no instruction begins at this address", kernel=self.lifted.kernel.name, offset=address)
        return int(self.layout.entry[slot])

    def place_of(self, index: int) -> int:
        """Return the byte offset in the new code of a reachable instruction."""
        return int(self.layout.instruction[self._slot_of[index]])

    @property
    def entry_offset(self) -> int:
        """Return the byte offset of the kernel's entry for the hardware."""
        return self.offset_of(self.lifted.kernel.entry) - len(self._entry.code)

    def _find_jumps(self, dispatcher_slots: Sequence[int]) -> list[_Jump]:
        """Return all jumps that encode their target, or will encode it.

        Args:
            dispatcher_slots: the slot of each dispatcher.
        """
        lifted, targets = self.lifted, self.lifted.code.target
        encoded = self.slots[targets[self.slots] != NO_TARGET]
        replacements: dict[int, tuple[int, bytes | None]] = {
            index: (target, None) for index, target in zip(encoded.tolist(), targets[encoded].tolist(), strict=True)
        }
        links = {call.index: call.link for function in lifted.functions for call in function.calls}

        def without_register(index: int) -> bytes:
            link = links.get(index)
            if link is None:
                return lifted.target.s_branch
            return lifted.isa.assemble(f"s_call_b64 s[{link}:{link + 1}], 0").instructions.code

        for direct in lifted.direct_jumps:
            replacements[direct.index] = direct.target, without_register(direct.index)
        jumps = [
            _Jump(int(self._slot_of[index]), slot, without_register(index))
            for slot, dispatcher in zip(dispatcher_slots, self._by_pointer, strict=True)
            for index in dispatcher.callers
        ]
        for index, (target, encoding) in replacements.items():
            slot_of_target = self._slot_at.get(target)
            if slot_of_target is None:
                raise PatchError(
                    f"branch target {target:#x} is not part of the lifted code",
                    kernel=lifted.kernel.name,
                    offset=int(lifted.code.addresses[index]),
                )
            jumps.append(_Jump(int(self._slot_of[index]), slot_of_target, encoding))
        return jumps

    def _by_way_of(self, stubs: Mapping[int, int], jumps: Sequence[_Jump]) -> list[_Jump]:
        """Return the jumps with those of some instructions redirected to stubs, whose own branches come last.

        Args:
            stubs: instruction -> the slot of its stub.
        """
        result, onward = [], []
        over = {int(self._slot_of[index]): stub for index, stub in stubs.items()}
        for jump in jumps:
            stub = over.pop(jump.slot, None)
            if stub is None:
                result.append(jump)
            else:
                result.append(jump._replace(target=stub))
                onward.append(_Jump(stub, jump.target, self.lifted.target.s_branch))
        for slot in over:
            raise PatchError(
                "no code can be inserted on the edge of an indirect jump",
                kernel=self.lifted.kernel.name,
                offset=int(self.lifted.code.addresses[self.slots[slot]]),
            )
        return result + onward

    def _lay_out(self, whole: NDArray[np.int64], before: NDArray[np.int64], behind: int) -> SlotLayout:
        """Place all slots.

        Args:
            whole: [m] bytes of each slot with its payloads.
            before: [m] bytes of the payloads before its instruction.
            behind: number of slots after the application's instructions.
        """
        lifted = self.lifted
        in_clause = np.zeros(len(lifted.code) + 1, np.int64)
        for clause in lifted.clauses:  # a clause may extend beyond reachable code
            in_clause[clause.first] += 1
            in_clause[min(clause.last + 1, len(lifted.code))] -= 1
        no_pool = np.append((np.cumsum(in_clause) > 0)[self.slots], np.zeros(behind, bool))
        alignment = {}
        for function in lifted.functions:
            first = self._slot_at[function.entry]
            alignment[first] = ENTRY_ALIGNMENT if function.is_kernel else 4
            no_pool[first] = True
        lead = {self._slot_at[lifted.kernel.entry]: len(self._entry.code)}
        jumps = np.array([(jump.slot, jump.target, 0) for jump in self._jumps], np.int64).reshape(-1, 3)
        branches = np.concatenate([jumps, self._calls])
        try:
            return lay_out(whole, before, alignment, branches, no_pool, lead)
        except LuthierError as problem:
            problem.kernel = lifted.kernel.name
            raise

    # Bytes

    def code(self, points: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the new code as 32-bit words, including padding, without payloads and address-dependent fields.

        Args:
            points: indices of instructions that are replaced, or before which code is spliced in.
        """
        layout, old = self.layout, self.lifted.code
        nop = int.from_bytes(self.lifted.target.s_nop, "little")
        words = np.full((layout.size + PREFETCH_PADDING) // 4, nop, "<u4")
        was = np.frombuffer(old.code, "<u4", len(old.code) // 4)
        to, from_ = layout.instruction // 4, old.offset[self.slots] // 4
        old_sizes = self.old_sizes[: len(self.slots)].copy()
        old_sizes[list(self._replaced)] = 0
        to = to[: len(self.slots)]
        for word in range(int(old_sizes.max(initial=0)) // 4):
            present = old_sizes > 4 * word
            words[to[present] + word] = was[from_[present] + word]
        for slot, new in self._replaced.items():
            words[to[slot] : to[slot] + len(new) // 4] = np.frombuffer(new, "<u4")
        for index in self._dropped(points):
            words[to[self._slot_of[index]]] = nop
        self._write_branches(words.view(np.uint8).data)
        return words

    def _dropped(self, points: NDArray[np.int64]) -> Iterator[int]:
        """Yield the instructions that become s_nop: invalid s_clause, and messages that would deallocate
        vector registers too early."""
        lifted = self.lifted
        spliced = np.zeros(len(lifted.code) + 1, bool)
        spliced[points] = True
        for clause in lifted.clauses:
            if self._slot_of[clause.index] >= 0 and spliced[clause.first : clause.last + 1].any():
                yield clause.index
        # Releasing registers early only lets other waves start earlier, so it can be left out.
        if lifted.releases and any(spliced[index] for index in lifted.released):
            yield from lifted.releases

    def _write_branches(self, out: memoryview) -> None:
        """Write branches and calls, the stubs at the entries and the islands."""
        lifted, layout = self.lifted, self.layout
        s_branch = lifted.target.s_branch
        entry = layout.entry.tolist()

        def set_offset(place: int, destination: int) -> None:
            struct.pack_into("<h", out, place, self._words(place, destination))

        instruction = layout.instruction.tolist()
        for number, jump in enumerate(self._jumps):
            place = instruction[jump.slot]
            if jump.replacement is not None:
                out[place : place + len(jump.replacement)] = jump.replacement
            hop = layout.hops.get(number)
            set_offset(place, entry[jump.target] if hop is None else layout.island_offset(*hop))

        start = self.entry_offset
        out[start : start + len(self._entry.code)] = self._entry.code
        for branch in self._entry.jumps:
            place = start + branch.place
            out[place : place + BRANCH_SIZE] = s_branch
            set_offset(place, start + branch.to if branch.inside else self.offset_of(branch.to))

        for slot, (offset, targets) in layout.pools.items():
            for number, place in enumerate(range(offset, offset + 4 + 4 * len(targets), 4)):
                out[place : place + 4] = s_branch
                if number == 0:
                    set_offset(place, entry[slot])
                    continue
                target = targets[number - 1]
                onward = next_hop(layout, slot, target, entry[target])
                set_offset(place, entry[target] if onward is None else layout.island_offset(*onward))

    def _words(self, place: int, destination: int) -> int:
        """Return the offset of a branch, in words."""
        words = (destination - place - 4) // 4
        self._check_words(words)
        return words

    def _check_words(self, words: int | NDArray[np.int64]) -> None:
        """Raise an error if an offset in words is one that the hardware cannot branch by.

        Raises:
            PatchError: such an offset.
        """
        if self.lifted.target.offset_3f_bug and np.any(words == OFFSET_3F):
            # A hardware bug that compilers avoid with an s_nop; rare enough to be refused.
            raise PatchError(
                "a branch would have the offset 0x3f, which gfx10.1 executes incorrectly",
                kernel=self.lifted.kernel.name,
            )

    def write_calls(self, words: NDArray[np.uint32]) -> None:
        """Write the dispatchers with the offsets of their branches, and the offsets of calls in payloads.

        Args:
            words: the new code, which contains the payloads.
        """
        layout = self.layout
        for place, dispatcher in zip(self.dispatchers.tolist(), self._by_pointer, strict=True):
            code = np.frombuffer(dispatcher.code, "<u4")
            words[place // 4 : place // 4 + len(code)] = code
        slots, targets, places = self._calls.T
        places, to = layout.instruction[slots] + places, layout.entry[targets]
        for number, hop in layout.hops.items():
            if number >= len(self._jumps):
                to[number - len(self._jumps)] = layout.island_offset(*hop)
        offsets = (to - places - 4) // 4
        self._check_words(offsets)
        words[places // 4] |= (offsets & 0xFFFF).astype(np.uint32)

    def literals(self) -> Iterator[PcLiteral]:
        """Yield the literals that are added to the results of s_getpc_b64.

        Raises:
            PatchError: an addition has no literal.
        """
        lifted, code = self.lifted, self.lifted.code
        table_of = {number: table for table, one in enumerate(lifted.code_tables) for number in one.references}
        for number, reference in enumerate(lifted.pc_references):
            if reference.low < 0:
                continue
            wide = reference.low == reference.high  # one addition of a 64-bit literal
            fields = []
            for half, index in enumerate((reference.low, reference.high)):
                if code.size[index] != (12 if wide else 8):
                    raise PatchError(
                        "a PC-relative reference adds an inline constant, not a literal that can be changed",
                        kernel=lifted.kernel.name,
                        offset=int(code.addresses[index]),
                    )
                fields.append(int(self.layout.instruction[self._slot_of[index]]) + 4 + (4 * half if wide else 0))
            code_offset = self.layout.instruction
            pc = int(code_offset[self._slot_of[reference.getpc]]) + int(code.size[reference.getpc])
            base: Literal["code", "memory"] | int = "memory"
            target = reference.target
            if number in table_of:
                base = table_of[number]
                target -= lifted.code_tables[base].address
            elif reference.kind == "code":  # pointers remain those of the original
                base, target = "code", self.offset_of(target)
            yield PcLiteral(fields[0], fields[1], pc, target, base, int(code.addresses[reference.low]))
