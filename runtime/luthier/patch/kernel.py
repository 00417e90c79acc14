"""One kernel with its payloads: from an `InstrumentationTask` to bytes that only want addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from luthier.errors import LuthierError, PatchError
from luthier.lifting import CodeTable, LiftedRepresentation
from luthier.mc import NO_TARGET
from luthier.patch.binding import RegisterBudget
from luthier.patch.emission import BoundPayload
from luthier.patch.layout import Branch, Layout, lay_out, next_hop
from luthier.patch.report import Refusal
from luthier.patch.splicing import Splicer
from luthier.task import InstrumentationTask

S_NOP = (0xBF800000).to_bytes(4, "little")
S_BRANCH = {
    major: (word << 16).to_bytes(4, "little") for major, word in ((9, 0xBF82), (10, 0xBF82), (11, 0xBFA0), (12, 0xBFA0))
}
"""s_branch by generation, without its offset."""
ENTRY_ALIGNMENT = 256
"""Kernel entry points must be aligned so (AMDGPUUsage, "Code Object V3 Kernel Descriptor")."""
PREFETCH_PADDING = 256
"""Bytes after the code that instruction prefetch may touch."""
PRELOAD_ENTRY = 256
"""Bytes from a kernel's entry to where hardware that preloads arguments starts it (AMDGPUUsage, "Preloaded Kernel
Arguments")."""
ENTRY_STUBS = 2 * PRELOAD_ENTRY
"""Bytes before a kernel with two entries: a branch at each of the two, since what is spliced in moves them apart."""


@dataclass(frozen=True)
class Jump:
    """A branch or call with a 16-bit word offset, as it will be in the new code."""

    target: int
    """Original virtual address it goes to."""
    replacement: bytes | None
    """New encoding without its offset, where a jump by register becomes a direct one."""


@dataclass(frozen=True)
class PatchedKernel:
    """A kernel laid out with its payloads, its addresses still open."""

    name: str
    lifted: LiftedRepresentation
    slots: NDArray[np.int64]
    """[n] instruction index of each slot, in address order."""
    layout: Layout
    payloads: Mapping[tuple[int, str], tuple[BoundPayload, ...]]
    """(instruction index, place) -> what is spliced in there."""
    budget: RegisterBudget
    sgprs: int
    """SGPRs needed, beyond what the kernel has or not."""
    vgprs: int
    jumps: Mapping[int, Jump]
    """Instruction index -> where it jumps, for every branch and call whose target is encoded in it."""
    dropped: frozenset[int]
    """Indices of instructions that become s_nop: s_clause that no longer hold, messages that would give vector
    registers back too early."""
    sites: int
    """Instructions with something spliced in before or after them."""
    added_instructions: int
    refusals: tuple[Refusal, ...]

    @property
    def size(self) -> int:
        """Bytes, with the padding after the code."""
        return self.layout.size + PREFETCH_PADDING

    @property
    def entry_offset(self) -> int:
        """Byte offset at which the hardware is to start the kernel."""
        stubs = ENTRY_STUBS if len(self.lifted.hardware_entries) > 1 else 0
        return self.offset_of(self.lifted.kernel.entry) - stubs

    def offset_of(self, address: int) -> int:
        """Byte offset in the new code of the instruction that was at `address`."""
        slot = int(np.searchsorted(self.lifted.code.addresses[self.slots], address))
        if slot == len(self.slots) or int(self.lifted.code.addresses[self.slots[slot]]) != address:
            raise PatchError("no instruction there", kernel=self.name, offset=address)
        return int(self.layout.entry[slot])


def patch_kernel(task: InstrumentationTask, *, strict: bool) -> PatchedKernel:
    """Bind the task's hooks and lay the kernel out.

    Args:
        strict: whether a hook that cannot be spliced in is an error; else it is among the kernel's `refusals`.

    Raises:
        PatchError, HookError: with the kernel and the offset where something cannot be done.
    """
    lifted = task.lifted
    code = lifted.code
    splicer = Splicer(task, strict=strict)
    payloads, points = splicer.payloads, splicer.points
    broken = {clause.index for clause in lifted.clauses if not points.isdisjoint(range(clause.first, clause.last + 1))}
    # Giving registers back early only lets other waves start earlier: do without.
    taken_back = () if points.isdisjoint(lifted.released) else lifted.releases

    slots = np.flatnonzero(np.array(lifted.block_of) >= 0)
    slot_of = {index: slot for slot, index in enumerate(slots.tolist())}
    sizes = code.size[slots].astype(np.int64)
    before = np.zeros(len(slots), np.int64)
    for (index, place), spliced in payloads.items():
        total = sum(len(payload.code) for payload in spliced)
        sizes[slot_of[index]] += total
        if place == "before":
            before[slot_of[index]] += total

    address_of = {address: slot for slot, address in enumerate(code.addresses[slots].tolist())}
    jumps = _jumps(lifted)
    branches = []
    for index, jump in jumps.items():
        if jump.target not in address_of:
            raise PatchError(
                f"branch target {jump.target:#x} is not part of the lifted code",
                kernel=lifted.kernel.name,
                offset=int(code.addresses[index]),
            )
        branches.append(Branch(slot_of[index], address_of[jump.target]))
    no_pool = np.zeros(len(slots), bool)
    alignment = {}
    for function in lifted.functions:
        slot = address_of[function.entry]
        alignment[slot] = ENTRY_ALIGNMENT if function.is_kernel else 4
        no_pool[slot] = True
    for clause in lifted.clauses:
        for index in range(clause.first, clause.last + 1):
            if index in slot_of:  # a clause may reach past code that is ever executed
                no_pool[slot_of[index]] = True
    lead = {}
    if len(lifted.hardware_entries) > 1:
        if lifted.hardware_entries != (lifted.kernel.entry, lifted.kernel.entry + PRELOAD_ENTRY):
            raise PatchError("the hardware may start this kernel at unknown places", kernel=lifted.kernel.name)
        lead[address_of[lifted.kernel.entry]] = ENTRY_STUBS
    try:
        layout = lay_out(sizes, before, alignment, branches, no_pool, lead)
    except LuthierError as problem:
        problem.kernel = lifted.kernel.name
        raise
    return PatchedKernel(
        lifted.kernel.name,
        lifted,
        slots,
        layout,
        {key: tuple(value) for key, value in payloads.items()},
        splicer.budget,
        splicer.sgprs,
        splicer.vgprs,
        jumps,
        frozenset(broken.union(taken_back)),
        len({index for index, _ in payloads}),
        splicer.instructions,
        tuple(splicer.refusals),
    )


def _jumps(lifted: LiftedRepresentation) -> dict[int, Jump]:
    """Everything that jumps to an address it encodes, or will."""
    targets = lifted.code.target
    jumps = {
        index: Jump(int(targets[index]), None)
        for index, block in enumerate(lifted.block_of)
        if block >= 0 and targets[index] != NO_TARGET
    }
    links = {call.index: call.link for function in lifted.functions for call in function.calls}
    for direct in lifted.direct_jumps:
        link = links.get(direct.index)
        if link is None:
            replacement = S_BRANCH[lifted.target.major]
        else:
            replacement = lifted.isa.assemble(f"s_call_b64 s[{link}:{link + 1}], 0").instructions.code
        jumps[direct.index] = Jump(direct.target, replacement)
    return jumps


def write_code(kernel: PatchedKernel, base: int, symbols: Mapping[str, int], tables: Sequence[int]) -> bytes:
    """The kernel's bytes at virtual address `base`.

    Args:
        kernel: from `patch_kernel`.
        base: where its first byte goes.
        symbols: address of every variable that payloads refer to.
        tables: new address of each of the kernel's `code_tables`.

    Raises:
        PatchError: a reference to an unknown symbol, or one out of reach.
    """
    lifted, layout, code = kernel.lifted, kernel.layout, kernel.lifted.code
    out = bytearray(S_NOP * (kernel.size // 4))
    literals = _pc_relative_literals(kernel, base, tables)
    slot_at = {address: slot for slot, address in enumerate(code.addresses[kernel.slots].tolist())}
    s_branch = S_BRANCH[lifted.target.major]

    def set_offset(place: int, destination: int) -> None:
        words = (destination - place - 4) // 4
        if words == 0x3F and lifted.target.name.startswith(("gfx101", "gfx10-1")):
            # A hardware bug that compilers avoid with an s_nop; rare enough to be refused.
            raise PatchError("a branch would have the offset 0x3f, which gfx10.1 executes wrongly", kernel=kernel.name)
        out[place : place + 2] = words.to_bytes(2, "little", signed=True)

    old = memoryview(code.code)
    rows = (kernel.slots, layout.instruction, layout.entry, code.offset[kernel.slots], code.size[kernel.slots])
    for slot, (index, place, entry, offset, size) in enumerate(zip(*(row.tolist() for row in rows), strict=True)):
        out[place : place + size] = S_NOP if index in kernel.dropped else old[offset : offset + size]
        if index in literals:
            out[place + size - 4 : place + size] = literals[index]
        jump = kernel.jumps.get(index)
        if jump is not None:
            if jump.replacement is not None:
                out[place : place + size] = jump.replacement
            hop = layout.hops.get(slot)
            there = int(layout.entry[slot_at[jump.target]])
            set_offset(place, there if hop is None else layout.island_offset(*hop))
        _write_payloads(out, entry, kernel.payloads.get((index, "before"), ()), base, symbols, kernel)
        _write_payloads(out, place + size, kernel.payloads.get((index, "after"), ()), base, symbols, kernel)

    if kernel.entry_offset != kernel.offset_of(lifted.kernel.entry):
        for distance in (0, PRELOAD_ENTRY):
            place = kernel.entry_offset + distance
            out[place : place + 4] = s_branch
            set_offset(place, kernel.offset_of(lifted.kernel.entry + distance))

    for slot, (offset, targets) in layout.pools.items():
        for number, place in enumerate(range(offset, offset + 4 + 4 * len(targets), 4)):
            out[place : place + 4] = s_branch
            if number == 0:
                set_offset(place, int(layout.entry[slot]))
                continue
            target = targets[number - 1]
            there = int(layout.entry[target])
            onward = next_hop(layout, slot, target, there)
            set_offset(place, there if onward is None else layout.island_offset(*onward))
    return bytes(out)


def _write_payloads(
    out: bytearray,
    place: int,
    payloads: tuple[BoundPayload, ...],
    base: int,
    symbols: Mapping[str, int],
    kernel: PatchedKernel,
) -> None:
    for payload in payloads:
        out[place : place + len(payload.code)] = payload.code
        for reference in payload.references:
            if reference.symbol not in symbols:
                raise PatchError(
                    f"a hook refers to {reference.symbol}, which the tool does not define", kernel=kernel.name
                )
            field_at = place + reference.offset
            value = symbols[reference.symbol] + reference.addend - (base + field_at)
            word = value >> 32 if reference.high else value
            out[field_at : field_at + 4] = (word & 0xFFFFFFFF).to_bytes(4, "little")
        place += len(payload.code)


def _pc_relative_literals(kernel: PatchedKernel, base: int, tables: Sequence[int]) -> dict[int, bytes]:
    """Instruction index -> new literal, for the additions to what s_getpc_b64 gave."""
    lifted, code = kernel.lifted, kernel.lifted.code
    literals: dict[int, bytes] = {}
    slot_of = {index: slot for slot, index in enumerate(kernel.slots.tolist())}
    moved = {
        number: address
        for table, address in zip(lifted.code_tables, tables, strict=True)
        for number in table.references
    }
    for number, reference in enumerate(lifted.pc_references):
        if reference.kind == "computed":
            continue
        pc = base + int(kernel.layout.instruction[slot_of[reference.getpc]]) + int(code.size[reference.getpc])
        if number in moved:
            target = moved[number] + reference.target - _table_of(lifted, number).address
        else:
            target = base + kernel.offset_of(reference.target) if reference.kind == "code" else reference.target
        value = target - pc
        for index, word in ((reference.low, value), (reference.high, value >> 32)):
            bytes_ = (word & 0xFFFFFFFF).to_bytes(4, "little")
            if code.size[index] != 8:
                raise PatchError(
                    "the address of a PC-relative reference is added as an inline constant",
                    kernel=kernel.name,
                    offset=int(code.addresses[index]),
                )
            if literals.setdefault(index, bytes_) != bytes_:
                raise PatchError(
                    "one addition serves several PC-relative references",
                    kernel=kernel.name,
                    offset=int(code.addresses[index]),
                )
    return literals


def _table_of(lifted: LiftedRepresentation, reference: int) -> CodeTable:
    return next(table for table in lifted.code_tables if reference in table.references)
