"""One kernel with its payloads: from an `InstrumentationTask` to code that lacks only addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.errors import PatchError
from luthier.hazards.insertion import ModeWrites
from luthier.lifting import LiftedRepresentation
from luthier.lifting.allocation import unallocated
from luthier.objects import Kernel, KernelDescriptor
from luthier.objects.origins import NO_LINK, NO_POINT, Inserted, Origins
from luthier.patch.boundary.scalar_reads import after_entry
from luthier.patch.layout.address_map import AddressMap
from luthier.patch.layout.dispatchers import Dispatcher, dispatchers
from luthier.patch.layout.moved import Replacement, replacements
from luthier.patch.layout.placement import PcLiteral, Placement, SharedPayloads, calls_of
from luthier.patch.outcome import KernelReport, UnallocatedError, UnresolvedCall
from luthier.patch.payloads.code import PayloadRelocation, assemble_payload
from luthier.patch.payloads.entry import EntryCode, entry_code
from luthier.patch.payloads.zones import Zone
from luthier.patch.splicing.attempts import splice
from luthier.patch.splicing.splicer import Spliced
from luthier.tool.counts import KernelCounters
from luthier.tool.task import InstrumentationTask


class SymbolFields(NamedTuple):
    """Fields with one half of ``symbol + addend``, minus the address of the field if they are PC-relative."""

    symbol: str
    addend: int
    high: bool
    distance: int
    """Bytes from the result of the s_getpc_b64 to the field; 0 if the loader fills it because it is not PC-relative."""
    offsets: NDArray[np.uint32]
    """[n] byte offset of each in the kernel's new code."""


class PatchedKernel(Struct, frozen=True):
    """A kernel laid out with its payloads, ready to be written at an address. It does not refer to the lifted kernel,
    to save memory for objects with thousands of kernels."""

    kernel: Kernel
    code: bytes
    """The new code with its padding, correct at any address except for `symbols` and `literals`."""
    entry_offset: int
    """Byte offset in `code` of the kernel's entry."""
    symbols: tuple[SymbolFields, ...]
    literals: tuple[PcLiteral, ...]
    tables: tuple[tuple[int, ...], ...]
    """For each constant table of code addresses to copy, the byte offset in `code` of each address."""
    descriptor: KernelDescriptor
    """The kernel's descriptor with its new registers, but with the old entry."""
    sgprs: int
    """Number of SGPRs that payloads need."""
    vgprs: int
    agprs: int
    """Number of AGPRs from a0 on that the kernel and payloads use."""
    report: KernelReport
    counters: KernelCounters | None
    """Meaning of its own cells, if it has any."""
    moved: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    """For each of the application's instructions: its byte offset in `code`, that of the code inserted before it, and
    its original address."""
    origins: Origins
    """Origins of the code at virtual address 0."""

    def address_map(self, base: int) -> AddressMap:
        """Return the map of the code at virtual address `base`."""
        addresses, begins, originals = self.moved
        return AddressMap(self.name, range(base, base + self.size), addresses + base, begins + base, originals)

    @property
    def name(self) -> str:
        """Return the kernel's symbol."""
        return self.kernel.name

    @property
    def size(self) -> int:
        """Return the size in bytes, including padding."""
        return len(self.code)


def patch_kernel(task: InstrumentationTask) -> PatchedKernel:
    """Bind the task's hooks, lay out the kernel and write its code.

    Raises:
        PatchError, HookError: the kernel cannot be patched; with strict options also if a hook cannot be spliced in,
            which is in the kernel's `refusals` otherwise. Errors have the kernel and the offset.
    """
    lifted = task.lifted
    for finding in unallocated(lifted):  # a larger allocation would hide the defect
        raise UnallocatedError(
            f"{finding.text} {finding.shortage}",
            object=lifted.object.name,
            kernel=lifted.kernel.name,
            offset=finding.address,
            target=str(lifted.object.target),
        )
    spliced = splice(task)
    parts = _KernelParts.of(lifted, spliced)
    placed = _placed(lifted, spliced, parts)
    code = _NewCode(lifted, spliced, parts, placed)
    descriptor = _descriptor(lifted, spliced)
    return PatchedKernel(
        lifted.kernel,
        code.words.tobytes(),
        placed.entry_offset,
        code.symbol_fields(),
        tuple(placed.literals()),
        tuple(tuple(placed.offset_of(target) for target in table.targets) for table in lifted.code_tables),
        descriptor,
        *spliced.needs,
        _report(task, placed, descriptor, spliced, code.instructions, parts.calls),
        spliced.counting.result,
        placed.moved(),
        _origins(lifted, spliced, placed, parts, len(code.words) * 4),
    )


class _KernelParts(Struct, frozen=True):
    """The parts of a kernel's new code besides its own instructions."""

    entry: EntryCode
    """Code before the first instruction."""
    sizes: NDArray[np.int64]
    """[payload] size in bytes."""
    calls: SharedPayloads
    dispatchers: list[Dispatcher]
    """Targets of calls by pointers."""
    replaced: dict[int, Replacement]
    """Instruction -> its replacement."""

    @classmethod
    def of(cls, lifted: LiftedRepresentation, spliced: Spliced) -> _KernelParts:
        return cls(
            _entry(lifted, spliced),
            np.array([len(payload.code) for payload in spliced.payloads], np.int64),
            calls_of(spliced),
            dispatchers(lifted, spliced.counting.leaving),
            replacements(lifted, spliced.edited.replaced),
        )


def _entry(lifted: LiftedRepresentation, spliced: Spliced) -> EntryCode:
    """Return the code for each hardware entry of the kernel: the set-up of launch state and counters, then hooks, which
    may use both."""
    starting = [assemble_payload(lifted.isa, lines)] if (lines := spliced.starting) else []
    mode_writes = ModeWrites(spliced.lifted)
    at_entry = []
    for address, counters in zip(lifted.hardware_entries, spliced.counting.entries, strict=True):
        own = [*starting, *counters]
        if settling := after_entry(lifted.isa, b"".join(piece.code for piece in own)):
            own.append(assemble_payload(lifted.isa, settling))
        index = lifted.index_at(address)
        if own and index is not None and (apart := mode_writes.behind(index)):
            own.append(assemble_payload(lifted.isa, apart))
        at_entry.append([*own, *spliced.entries])
    return entry_code(lifted, at_entry)


def _placed(lifted: LiftedRepresentation, spliced: Spliced, parts: _KernelParts) -> Placement:
    """Return the placement of all parts."""
    placements = spliced.placements
    return Placement(
        lifted,
        placements.indices,
        placements.zones,
        parts.sizes[placements.numbers],
        parts.entry,
        {index: one.code for index, one in parts.replaced.items()},
        parts.calls,
        parts.sizes[parts.calls.bodies],
        parts.dispatchers,
    )


class _NewCode:
    """The code of a patched kernel, with its references to symbols.

    Attributes:
        words: the code.
        instructions: number of added instructions.
    """

    def __init__(self, lifted: LiftedRepresentation, spliced: Spliced, parts: _KernelParts, placed: Placement) -> None:
        placements = spliced.placements
        points = (placements.indices + (placements.zones == Zone.BEHIND))[placements.disturbs]
        self.words = placed.code(np.append(points, np.array(list(parts.replaced), np.int64)))
        self.instructions = parts.entry.instructions
        self._symbols: dict[tuple[str, int, bool, int], list[NDArray[np.int64]]] = {}
        self._write_payloads(spliced, parts.calls, placed)
        placed.write_calls(self.words)
        for dispatcher, place in zip(parts.dispatchers, placed.dispatchers.tolist(), strict=True):
            self.instructions += dispatcher.instructions
            self._refer(dispatcher.references, np.array([place]))
        for index, replacement in parts.replaced.items():
            self._refer(replacement.references, np.array([placed.place_of(index)]))
        self._refer(parts.entry.references, np.array([placed.entry_offset]))

    def symbol_fields(self) -> tuple[SymbolFields, ...]:
        """Return the fields with addresses of symbols."""
        fields = ((key, np.concatenate(offsets).astype(np.uint32)) for key, offsets in self._symbols.items())
        return tuple(SymbolFields(*key, offsets) for key, offsets in fields)

    def _refer(self, references: Iterable[PayloadRelocation], at: NDArray[np.int64]) -> None:
        """Record references of code that is placed at some byte offsets."""
        for field in references:
            self._symbols.setdefault(field.key, []).append(at + field.offset)

    def _write_payloads(self, spliced: Spliced, calls: SharedPayloads, placed: Placement) -> None:
        """Write each payload at all its places."""
        numbers = spliced.placements.numbers
        by_payload = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=len(spliced.payloads))).tolist()
        body_at = dict(zip(calls.bodies.tolist(), placed.bodies.tolist(), strict=True))
        begin = 0
        for number, (payload, end) in enumerate(zip(spliced.payloads, ends, strict=True)):
            which = by_payload[begin:end]
            begin = end
            at = placed.payloads[which] if number not in body_at else np.array([body_at[number]])
            self.instructions += payload.instructions * len(at)
            code = np.frombuffer(payload.code, "<u4")
            self.words[(at // 4)[:, None] + np.arange(len(code))] = code
            self._refer(payload.references, at)
            if payload.immediates and len(which):
                own = np.array([spliced.placements.immediates[one] for one in which.tolist()], np.uint32)
                self.words[(at // 4)[:, None] + np.array(payload.immediates) // 4] = own


def _descriptor(lifted: LiftedRepresentation, spliced: Spliced) -> KernelDescriptor:
    """Return the kernel's descriptor with its new registers and memory."""
    changes = dict(spliced.state.changes)
    if private := spliced.private_memory:
        changes["private_segment_fixed_size"] = private
    if spliced.lds:
        changes["group_segment_fixed_size"] = lifted.kernel.group_segment_fixed_size + spliced.lds
    needs = spliced.needs
    return replace(lifted.kernel.descriptor, **changes).with_registers(
        vgprs=needs.vgprs or None, agprs=needs.agprs, sgprs=needs.sgprs or None
    )


def _origins(
    lifted: LiftedRepresentation, spliced: Spliced, placed: Placement, parts: _KernelParts, size: int
) -> Origins:
    """Return the origins of the new code.

    Args:
        size: bytes of the code.
    """
    addresses, _, originals = placed.moved()
    names, calls, numbers = spliced.names.all(), parts.calls, spliced.placements.numbers
    where, bytes_of = np.asarray(lifted.code.addresses)[spliced.placements.indices].tolist(), parts.sizes.tolist()
    pieces = [
        (start, start + bytes_of[number], point, names[number], NO_LINK)
        for start, number, point in zip(placed.payloads.tolist(), numbers.tolist(), where, strict=True)
    ]
    bodies = zip(placed.bodies.tolist(), calls.bodies.tolist(), calls.links(spliced).tolist(), strict=True)
    pieces += [(start, start + bytes_of[number], NO_POINT, names[number], link) for start, number, link in bodies]
    for start, dispatcher in zip(placed.dispatchers.tolist(), parts.dispatchers, strict=True):
        callers = dispatcher.callers
        point = NO_POINT if len(callers) > 1 else int(lifted.code.addresses[callers[0]])
        pieces.append((start, start + len(dispatcher.code), point, "", NO_LINK))
    if parts.entry.code:
        start = placed.entry_offset
        pieces.append((start, start + len(parts.entry.code), lifted.kernel.entry, spliced.names.entry, NO_LINK))
    functions = tuple(sorted((function.entry, function.name) for function in lifted.functions))
    return Origins(lifted.kernel.name, 0, size, addresses, originals, Inserted.of(pieces), functions)


def _report(
    task: InstrumentationTask,
    placed: Placement,
    after: KernelDescriptor,
    spliced: Spliced,
    added_instructions: int,
    calls: SharedPayloads,
) -> KernelReport:
    lifted, refusals, tally = task.lifted, tuple(spliced.refusals), spliced.tally
    kernel = lifted.kernel
    before = kernel.descriptor
    return KernelReport(
        kernel.name,
        tally.sites,
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
        spliced.counting.counters,
        tally.hoisted,
        len(task.edits),
        len(calls.callers),
        len(calls.bodies),
        tally.spilling,
        tally.excess,
        _unresolved(lifted),
        (before.group_segment_fixed_size, after.group_segment_fixed_size),
        tally.in_agprs,
        tally.in_lds,
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
    """Return the kernel's bytes at virtual address `base`.

    Args:
        kernel: from `patch_kernel`.
        base: address of its first byte.
        symbols: symbol -> address of each variable that payloads use.
        tables: new address of each of the kernel's `tables`.

    Raises:
        PatchError: a symbol is unknown.
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
                    "one addition belongs to several PC-relative references", kernel=kernel.name, offset=literal.address
                )
            words[offset // 4] = word
    return words.tobytes()
