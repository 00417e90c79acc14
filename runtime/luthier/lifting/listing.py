"""A lifted kernel as text, and as plain data for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from luthier.isa import InstructionFlag, Opcode
from luthier.isa.registers import AGPR_FIRST
from luthier.lifting.allocation import unallocated
from luthier.lifting.annotations import Annotations, LiveCounts
from luthier.lifting.model import BasicBlock, CallSite, Function
from luthier.lifting.representation import LiftedRepresentation
from luthier.support.wording import counted

_HOTTEST = 10
"""Number of source lines in the list of those with the most executed instructions."""


def sort_of(opcode: Opcode) -> str:
    """Return the kind of an instruction as a word or two: the `kind` of `luthier.run.schema.LISTINGS`."""
    if opcode.pseudo.startswith(_WAITS):
        return "wait"
    return next((name for flags, name in _SORTS if opcode.flags & flags), "other")


_WAITS = ("S_WAIT", "S_NOP", "S_DELAY", "S_SLEEP", "S_BARRIER")
_F = InstructionFlag
_SORTS = (
    (_F.BRANCH | _F.CALL | _F.RETURN | _F.TERMINATOR, "control"),
    (_F.MATRIX, "matrix"),
    (_F.DS, "lds"),
    (_F.VMEM | _F.FLAT | _F.EXPORT, "memory"),
    (_F.SMEM, "scalar memory"),
    (_F.VALU, "vector"),
    (_F.SALU, "scalar"),
)


def as_text(
    lifted: LiftedRepresentation,
    *,
    instructions: bool = False,
    registers: bool = False,
    annotations: Annotations | None = None,
) -> Iterator[str]:
    """Yield lines that list functions, blocks, edges, calls, addresses and unknown targets.

    Args:
        instructions: also list every instruction.
        registers: name the live registers of each block instead of counting them.
        annotations: also list every instruction, with these annotations.
    """
    reached = sum(block.last - block.first + 1 for block in lifted.blocks)
    yield (
        f"kernel {lifted.kernel.name}: {lifted.object.target}, wave{lifted.wave_size}, "
        f"{counted(len(lifted.functions), 'function')}, {counted(len(lifted.blocks), 'block')}, "
        f"{counted(reached, 'instruction')}"
    )
    if annotations is not None:
        yield from _summary(annotations)
    yield from (finding.sentence for finding in unallocated(lifted))
    for address in lifted.hardware_entries[1:]:
        yield f"also started at {address:#x}"
    for function in lifted.functions:
        yield f"function {function.index} {function.name} at {function.entry:#x}"
        for block in function.blocks:
            yield from _block(lifted, function, block, instructions, registers, annotations)
    for reference in lifted.pc_references:
        address = lifted.columns.address[reference.getpc]
        yield f"reference at {address:#x} to {reference.kind} {reference.target:#x}{_name(lifted, reference.target)}"
    for table in lifted.code_tables:
        targets = ", ".join(f"{target:#x}{_name(lifted, target)}" for target in table.targets)
        yield f"code table at {table.address:#x}: {targets}"
    for jump in lifted.direct_jumps:
        yield f"direct jump at {lifted.columns.address[jump.index]:#x} to {jump.target:#x}"
    for clause in lifted.clauses:
        yield f"clause at {lifted.columns.address[clause.index]:#x} of {clause.last - clause.first + 1}"
    for first, last, reason in _runs(lifted):
        where = f"{lifted.columns.address[first]:#x}" + (
            f" to {lifted.columns.address[last]:#x}" if last > first else ""
        )
        yield f"nothing can be inserted at {where}: {reason}"
    for index in lifted.releases:
        yield f"vector registers are deallocated at {lifted.columns.address[index]:#x}"
    for unknown in lifted.unknown:
        yield f"unknown target at {lifted.columns.address[unknown.index]:#x}: {unknown.reason}"


def as_data(lifted: LiftedRepresentation, annotations: Annotations | None = None) -> dict[str, Any]:
    """Return the listing as JSON-compatible data, with virtual addresses and the indices of the representation."""
    address = lifted.columns.address
    return {
        "object": lifted.object.name,
        "kernel": lifted.kernel.name,
        "target": str(lifted.object.target),
        "wave_size": lifted.wave_size,
        "hardware_entries": list(lifted.hardware_entries),
        "unallocated": [finding.to_json() for finding in unallocated(lifted)],
        "instructions": sum(block.last - block.first + 1 for block in lifted.blocks),
        "functions": [
            {
                "index": function.index,
                "name": function.name,
                "entry": function.entry,
                "is_kernel": function.is_kernel,
                "blocks": [block.index for block in function.blocks],
                "calls": [
                    {
                        "address": address[call.index],
                        "kind": call.kind,
                        "callees": list(call.callees),
                        "known": call.known,
                        "return_block": call.return_block,
                        "slots": list(call.slots),
                    }
                    for call in function.calls
                ],
            }
            for function in lifted.functions
        ],
        "blocks": [
            {
                "index": block.index,
                "function": block.function,
                "address": address[block.first],
                "end": address[block.last] + lifted.columns.size[block.last],
                "instructions": block.last - block.first + 1,
                "exit": block.exit,
                "successors": [{"kind": edge.kind, "to": edge.to} for edge in block.successors],
                "predecessors": list(block.predecessors),
                "live_in": LiveCounts.of(lifted.liveness.live_in(block.index))._asdict(),
                "live_in_active": lifted.liveness.live_in(block.index).active.names(),
                "live_in_all_lanes": lifted.liveness.live_in(block.index).all_lanes.names(),
            }
            for block in lifted.blocks
        ],
        "pc_references": [
            {"address": address[reference.getpc], "target": reference.target, "kind": reference.kind}
            for reference in lifted.pc_references
        ],
        "direct_jumps": [{"address": address[jump.index], "target": jump.target} for jump in lifted.direct_jumps],
        "code_tables": [{"address": table.address, "targets": list(table.targets)} for table in lifted.code_tables],
        "clauses": [
            {"address": address[clause.index], "instructions": clause.last - clause.first + 1}
            for clause in lifted.clauses
        ],
        "releases": [address[index] for index in lifted.releases],
        "restrictions": [
            {"first": address[first], "last": address[last], "reason": reason} for first, last, reason in _runs(lifted)
        ],
        "unknown": [{"address": address[unknown.index], "reason": unknown.reason} for unknown in lifted.unknown],
        **({} if annotations is None else annotations.as_data()),
    }


def _summary(annotations: Annotations) -> Iterator[str]:
    """Yield the registers and occupancy, problems of the source, and the lines with the most executed instructions."""
    uses = annotations.resources
    limits = annotations.lifted.kernel.occupancy().limited_by
    yield (
        f"{uses['vgprs']} VGPRs ({uses['allocated_vgprs']} allocated), {uses['agprs']} AGPRs, {uses['sgprs']} SGPRs, "
        f"{uses['lds_bytes']} bytes of LDS, {uses['scratch_bytes']} of scratch a lane: "
        f"{uses['waves_per_simd']} of {uses['most_waves_per_simd']} waves fit on a SIMD"
        + (f", limited by {' and '.join(limits)}" if limits else "")
    )
    for problem in annotations.lifted.object.source.problems:
        yield f"source: {problem}"
    if annotations.counts is not None:
        total = sum(annotations.by_line().values())
        yield f"{total} wave-instructions counted"
        for (file, line), count in list(annotations.by_line().items())[:_HOTTEST]:
            yield f"  {100 * count / total:5.1f} % {file or 'source not known'}" + (f":{line}" if file else "")


def _block(
    lifted: LiftedRepresentation,
    function: Function,
    block: BasicBlock,
    instructions: bool,
    registers: bool,
    annotations: Annotations | None,
) -> Iterator[str]:
    live = lifted.liveness.live_in(block.index)
    targets = ", ".join(f"{edge.kind} {edge.to}" for edge in block.successors)
    size = "" if instructions or annotations else f" ({block.last - block.first + 1})"
    loop = annotations.loop(block.index) if annotations else None
    depth = f" in loop {loop.depth} deep" if loop else ""
    call = next((call for call in function.calls if call.index == block.last), None)
    calls = f" {_callees(lifted, call)}" if call is not None else ""
    yield f"  block {block.index} at {lifted.columns.address[block.first]:#x}{size}{depth}: {block.exit}{calls}" + (
        f" -> {targets}" if targets else ""
    )
    if registers:
        only_inactive = type(live.active)(live.all_lanes & ~live.active)
        yield f"    live: {live.active}" + (f"; in inactive lanes: {only_inactive}" if only_inactive else "")
    else:
        counts = LiveCounts.of(live)
        matrix = (live.all_lanes >> AGPR_FIRST).bit_count()
        yield (
            f"    live: {counts.scalar} scalar, {counts.vector_active} vector, "
            f"{counts.vector_all_lanes} in all lanes" + (f" ({matrix} of them AGPRs)" if matrix else "")
        )
    if annotations is not None:
        yield from _annotated(annotations, block)
    elif instructions:
        for index in range(block.first, block.last + 1):
            yield f"    {lifted.columns.address[index]:#x} {lifted.isa.text(lifted.code, index)}"


def _annotated(annotations: Annotations, block: BasicBlock) -> Iterator[str]:
    """Yield instructions with executions and live registers, and a line at each change of the source location."""
    lifted = annotations.lifted
    before = None
    for index in range(block.first, block.last + 1):
        source = annotations.source(index)
        if source != before:
            yield f"    ; {source or 'source not known'}"
            before = source
        ran, live = annotations.ran(index), annotations.live(index)
        count = "" if annotations.counts is None else f"{'?' if ran is None else ran.executions:>12} "
        yield (
            f"    {count}s{live.scalar:<3} v{live.vector_active:<3} {lifted.columns.address[index]:#x} "
            f"{lifted.isa.text(lifted.code, index)}"
        )


def _callees(lifted: LiftedRepresentation, call: CallSite) -> str:
    names = [lifted.functions[callee].name for callee in call.callees]
    names += [] if call.known else ["unknown"]
    slots = f" through {', '.join(f'{slot:#x}' for slot in call.slots)}" if call.slots else ""
    return " or ".join(names) + slots


def _name(lifted: LiftedRepresentation, address: int) -> str:
    for function in lifted.functions:
        if function.entry == address:
            return f" {function.name}"
    for symbol in lifted.object.symbols:
        if symbol.defined and symbol.section != "*ABS*" and symbol.address == address:
            return f" {symbol.name}"
    return ""


def _runs(lifted: LiftedRepresentation) -> Iterator[tuple[int, int, str]]:
    """Yield ranges of adjacent restricted instructions with the same reason."""
    first = last = -1
    for index, reason in lifted.restrictions.items():
        if first >= 0 and index == last + 1 and lifted.restrictions[last] == reason:
            last = index
            continue
        if first >= 0:
            yield first, last, lifted.restrictions[first]
        first = last = index
    if first >= 0:
        yield first, last, lifted.restrictions[first]
