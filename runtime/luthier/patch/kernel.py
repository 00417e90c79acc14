"""One kernel with its payloads: from an `InstrumentationTask` to bytes that only want addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier.counts import KernelCounters
from luthier.errors import PatchError
from luthier.lifting import LiftedRepresentation
from luthier.objects import Kernel, KernelDescriptor
from luthier.objects.origins import NO_LINK, NO_POINT, Inserted, Origins
from luthier.patch.address_map import AddressMap
from luthier.patch.emission import assemble_payload
from luthier.patch.entry import entry_code
from luthier.patch.layout import Zone
from luthier.patch.moved import replacements
from luthier.patch.placement import Calls, PcLiteral, Placement, calls_of
from luthier.patch.pointers import Dispatcher, dispatchers
from luthier.patch.report import KernelReport, UnresolvedCall
from luthier.patch.scalar_reads import after_entry
from luthier.patch.splicing import Splicer, splice
from luthier.task import InstrumentationTask


class SymbolFields(NamedTuple):
    """Fields that hold one half of ``symbol + addend``, less the address of the field if they are PC-relative."""

    symbol: str
    addend: int
    high: bool
    distance: int
    """Bytes from what the s_getpc_b64 gives that the field is added to, to the field; 0 if it is not PC-relative: then
    the loader fills it."""
    offsets: NDArray[np.uint32]
    """[n] byte offset of each in the kernel's new code."""


@dataclass(frozen=True)
class PatchedKernel:
    """A kernel laid out with its payloads; what writing it needs once its address is known. It does not refer to the
    lifted kernel, so that an object with thousands of kernels keeps only this of each."""

    kernel: Kernel
    code: bytes
    """The new code with its padding, right at any address but for `symbols` and `literals`."""
    entry_offset: int
    """Byte offset in `code` at which the hardware is to start the kernel."""
    symbols: tuple[SymbolFields, ...]
    literals: tuple[PcLiteral, ...]
    tables: tuple[tuple[int, ...], ...]
    """For each constant table of code addresses that is to be copied, the byte offset in `code` of each address."""
    descriptor: KernelDescriptor
    """The kernel's, with the registers it needs now; its entry is still the old one."""
    sgprs: int
    """SGPRs that payloads need, beyond what the kernel has or not."""
    vgprs: int
    agprs: int
    """AGPRs that it and payloads use: so many from a0 on."""
    report: KernelReport
    counters: KernelCounters | None
    """What cells of its own say, where it has such."""
    moved: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    """Of each of the application's instructions: byte offset in `code`, that of what was inserted before it, and the
    address it had."""
    origins: Origins
    """If its first byte is at virtual address 0."""

    def address_map(self, base: int) -> AddressMap:
        """Where its instructions are if its first byte is at virtual address `base`."""
        addresses, begins, originals = self.moved
        return AddressMap(self.name, range(base, base + self.size), addresses + base, begins + base, originals)

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return self.kernel.name

    @property
    def size(self) -> int:
        """Bytes, with the padding after the code."""
        return len(self.code)


def patch_kernel(task: InstrumentationTask, *, strict: bool) -> PatchedKernel:
    """Bind the task's hooks, lay the kernel out and write its code.

    Args:
        strict: whether a hook that cannot be spliced in is an error; else it is among the kernel's `refusals`.

    Raises:
        PatchError, HookError: with the kernel and the offset where something cannot be done.
    """
    lifted = task.lifted
    splicer = splice(task, strict=strict)
    starting = [assemble_payload(lifted.isa, lines)] if (lines := splicer.starting) else []
    at_entry = []
    for counters in splicer.counting.entries:
        own = [*starting, *counters]
        if settling := after_entry(lifted.isa, b"".join(piece.code for piece in own)):
            own.append(assemble_payload(lifted.isa, settling))
        at_entry.append([*own, *splicer.entries])
    entry = entry_code(lifted, at_entry)
    sizes = np.array([len(payload.code) for payload in splicer.payloads], np.int64)
    calls = calls_of(splicer)
    by_pointer = dispatchers(lifted, splicer.counting.leaving)
    replaced = replacements(lifted, splicer.edited.replaced)
    placed = Placement(
        lifted,
        splicer.indices,
        splicer.zones,
        sizes[splicer.numbers],
        entry,
        {index: one.code for index, one in replaced.items()},
        calls,
        sizes[calls.bodies],
        by_pointer,
    )
    points = (splicer.indices + (splicer.zones == Zone.BEHIND))[splicer.disturbs]
    words = placed.code(np.append(points, np.array(list(replaced), np.int64)))
    symbols: dict[tuple[str, int, bool, int], list[NDArray[np.int64]]] = {}
    by_payload = np.argsort(splicer.numbers, kind="stable")
    ends = np.cumsum(np.bincount(splicer.numbers, minlength=len(splicer.payloads))).tolist()
    instructions = entry.instructions
    begin = 0
    body_at = dict(zip(calls.bodies.tolist(), placed.bodies.tolist(), strict=True))
    for number, (payload, end) in enumerate(zip(splicer.payloads, ends, strict=True)):
        which = by_payload[begin:end]
        at = placed.payloads[which] if number not in body_at else np.array([body_at[number]])
        instructions += payload.instructions * len(at)
        begin = end
        code = np.frombuffer(payload.code, "<u4")
        words[(at // 4)[:, None] + np.arange(len(code))] = code
        for field in payload.references:
            symbols.setdefault(field.key, []).append(at + field.offset)
        if payload.immediates and len(which):
            mine = np.array([splicer.immediates[one] for one in which.tolist()], np.uint32)
            words[(at // 4)[:, None] + np.array(payload.immediates) // 4] = mine
    placed.write_calls(words)
    for dispatcher, place in zip(by_pointer, placed.dispatchers.tolist(), strict=True):
        instructions += dispatcher.instructions
        for field in dispatcher.references:
            symbols.setdefault(field.key, []).append(np.array([place + field.offset]))
    for index, replacement in replaced.items():
        for field in replacement.references:
            symbols.setdefault(field.key, []).append(np.array([placed.place_of(index) + field.offset]))
    for field in entry.references:
        symbols.setdefault(field.key, []).append(np.array([placed.entry_offset + field.offset]))

    changes = dict(splicer.state.changes)
    if private := splicer.private_memory:
        changes["private_segment_fixed_size"] = private
    if splicer.lds:
        changes["group_segment_fixed_size"] = lifted.kernel.group_segment_fixed_size + splicer.lds
    descriptor = replace(lifted.kernel.descriptor, **changes).with_registers(
        vgprs=splicer.vgprs or None, agprs=splicer.agprs, sgprs=splicer.sgprs or None
    )
    return PatchedKernel(
        lifted.kernel,
        words.tobytes(),
        placed.entry_offset,
        tuple(SymbolFields(*key, np.concatenate(offsets).astype(np.uint32)) for key, offsets in symbols.items()),
        tuple(placed.literals()),
        tuple(tuple(placed.offset_of(target) for target in table.targets) for table in lifted.code_tables),
        descriptor,
        splicer.sgprs,
        splicer.vgprs,
        splicer.agprs,
        _report(task, placed, descriptor, splicer, instructions, calls),
        splicer.counting.result,
        placed.moved(),
        _origins(lifted, splicer, placed, sizes, calls, by_pointer, len(entry.code), len(words) * 4),
    )


def _origins(
    lifted: LiftedRepresentation,
    splicer: Splicer,
    placed: Placement,
    sizes: NDArray[np.int64],
    calls: Calls,
    by_pointer: Sequence[Dispatcher],
    entry_size: int,
    size: int,
) -> Origins:
    """Whose the new code is.

    Args:
        sizes: bytes of each payload.
        entry_size: bytes that run before the first instruction.
        size: bytes of all.
    """
    addresses, _, originals = placed.moved()
    names = splicer.names
    where, bytes_of = np.asarray(lifted.code.addresses)[splicer.indices].tolist(), sizes.tolist()
    pieces = [
        (start, start + bytes_of[number], point, names[number], NO_LINK)
        for start, number, point in zip(placed.payloads.tolist(), splicer.numbers.tolist(), where, strict=True)
    ]
    bodies = zip(placed.bodies.tolist(), calls.bodies.tolist(), calls.links(splicer).tolist(), strict=True)
    pieces += [(start, start + bytes_of[number], NO_POINT, names[number], link) for start, number, link in bodies]
    for start, dispatcher in zip(placed.dispatchers.tolist(), by_pointer, strict=True):
        first, *others = dispatcher.callers
        point = NO_POINT if others else int(lifted.code.addresses[first])
        pieces.append((start, start + len(dispatcher.code), point, "", NO_LINK))
    if entry_size:
        start = placed.entry_offset
        pieces.append((start, start + entry_size, lifted.kernel.entry, splicer.entry_name, NO_LINK))
    functions = tuple(sorted((function.entry, function.name) for function in lifted.functions))
    return Origins(lifted.kernel.name, 0, size, addresses, originals, Inserted.of(pieces), functions)


def _report(
    task: InstrumentationTask,
    placed: Placement,
    after: KernelDescriptor,
    splicer: Splicer,
    added_instructions: int,
    calls: Calls,
) -> KernelReport:
    lifted, refusals = task.lifted, tuple(splicer.refusals)
    kernel = lifted.kernel
    before = kernel.descriptor
    return KernelReport(
        kernel.name,
        splicer.sites,
        len(task.insertions) - len(refusals),
        len(placed.slots),
        added_instructions,
        int(placed.old_sizes[: len(placed.slots)].sum()),
        placed.layout.size,
        (before.vgprs, after.vgprs),
        (before.sgprs, after.sgprs),
        (kernel.occupancy().waves, kernel.occupancy(after).waves),
        len(lifted.unknown),
        len({insertion.at for insertion in task.insertions}),
        refusals,
        len(task.counts),
        splicer.counting.counters,
        splicer.hoisted[1],
        len(task.edits),
        len(calls.callers),
        len(calls.bodies),
        splicer.spilling,
        splicer.excess,
        _unresolved(lifted),
        (before.group_segment_fixed_size, after.group_segment_fixed_size),
        splicer.in_agprs,
        splicer.in_lds,
    )


def _unresolved(lifted: LiftedRepresentation) -> tuple[UnresolvedCall, ...]:
    callees = {call.index: call.callees for function in lifted.functions for call in function.calls}
    return tuple(
        UnresolvedCall(
            lifted.columns.address[one.index],
            lifted.isa.text(lifted.code, one.index),
            lifted.functions[lifted.blocks[lifted.block_of[one.index]].function].name,
            one.reason,
            tuple(lifted.functions[callee].name for callee in callees.get(one.index, ())),
        )
        for one in lifted.unknown
    )


def write_code(kernel: PatchedKernel, base: int, symbols: Mapping[str, int], tables: Sequence[int]) -> bytes:
    """The kernel's bytes at virtual address `base`.

    Args:
        kernel: from `patch_kernel`.
        base: where its first byte goes.
        symbols: address of every variable that payloads refer to.
        tables: new address of each of the kernel's `tables`.

    Raises:
        PatchError: a reference to an unknown symbol.
    """
    words = np.frombuffer(kernel.code, "<u4").copy()
    for field in kernel.symbols:
        if field.symbol not in symbols:
            raise PatchError(f"a hook refers to {field.symbol}, which the tool does not define", kernel=kernel.name)
        if not field.distance:
            continue
        values = symbols[field.symbol] + field.addend - (base + field.offsets.astype(np.int64))
        words[field.offsets // 4] = (values >> 32 if field.high else values) & 0xFFFFFFFF
    written: dict[int, int] = {}
    for literal in kernel.literals:
        origin = {"code": base, "memory": 0}[literal.base] if isinstance(literal.base, str) else tables[literal.base]
        value = origin + literal.target - (base + literal.pc)
        for offset, word in ((literal.low, value), (literal.high, value >> 32)):
            word &= 0xFFFFFFFF
            if written.setdefault(offset, word) != word:
                raise PatchError(
                    "one addition serves several PC-relative references", kernel=kernel.name, offset=literal.address
                )
            words[offset // 4] = word
    return words.tobytes()
