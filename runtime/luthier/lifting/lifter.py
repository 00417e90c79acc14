"""Lifting of a code object to a `LiftedRepresentation`."""

from __future__ import annotations

import bisect
import os
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Literal

from luthier import _mc
from luthier.errors import LiftError
from luthier.isa import InstructionArray, Isa
from luthier.isa import registers as r
from luthier.lifting.addresses.analysis import GETPC_SIZE, AddressAnalysis, known_functions, search_cache
from luthier.lifting.addresses.pointers import MOST_POINTED, pointed_functions
from luthier.lifting.addresses.slots import CodeSlots
from luthier.lifting.code.effort import Effort
from luthier.lifting.code.explore import Explorer
from luthier.lifting.code.graph import Graph, Resolution, build_graph
from luthier.lifting.code.regions import Regions, find_regions
from luthier.lifting.code.text import Text, text_of
from luthier.lifting.code.vgpr_banks import VgprBanks
from luthier.lifting.instructions.effects import Columns, EffectTable, effect_table, listed
from luthier.lifting.instructions.semantics import Control, Mark
from luthier.lifting.model import (
    EDGE_KINDS,
    EXITS,
    BasicBlock,
    CallSite,
    CodeTable,
    DirectJump,
    Edge,
    Function,
    PcReference,
    Restriction,
    Unknown,
)
from luthier.lifting.representation import LiftedRepresentation
from luthier.objects import CodeObject, Kernel, load_object
from luthier.support.wording import enumerated

MOST_ROUNDS = 200
"""Maximum number of rounds in which all known functions are analysed."""
MOST_ANALYSES = 1024
"""Maximum number of functions of an object whose analyses are cached for the next kernel."""
_analyses: weakref.WeakKeyDictionary[Text, _mc.SearchCache] = weakref.WeakKeyDictionary()


def lift(object: CodeObject | bytes | str | os.PathLike[str], kernel: str) -> LiftedRepresentation:
    """Lift one kernel and every function it may call.

    Args:
        object: a code object, or an argument of `luthier.objects.load_object`.
        kernel: the kernel's name.

    Raises:
        LiftError: there is no such kernel, or its code cannot be analysed safely; with the address.
        ObjectError: the object is malformed.
    """
    code_object = object if isinstance(object, CodeObject) else load_object(object)
    record = code_object.kernels.get(kernel)
    if record is None:
        raise LiftError(f"no kernel {kernel!r}; there are: {enumerated(code_object.kernels)}", object=code_object.name)
    effort = Effort(
        lambda message: LiftError(
            message,
            object=code_object.name,
            kernel=kernel,
            offset=record.entry,
            target=code_object.target.target.name,
        )
    )
    left_out: dict[int, str] = {}
    while True:
        lifter = _Lifter(code_object, record, left_out, effort)
        try:
            return lifter.run()
        except LiftError as problem:
            # If a possible target of calls by pointers cannot be lifted, treat it as unknown and try again.
            culprit = None if problem.offset is None else lifter.explorer.extent(problem.offset)
            if culprit is None or culprit.start not in lifter.pointed:
                if not lifter.pointed:
                    raise
                left_out |= dict.fromkeys(lifter.pointed, problem.message)
            else:
                left_out[culprit.start] = f"{culprit.name}: {problem.message}"


class _Lifter:
    """
    Args:
        left_out: functions of the object to which pointers are not followed -> reason.
        effort: limit on the work.

    Attributes:
        pointed: functions that an indirect jump may reach through a pointer.
    """

    def __init__(self, object: CodeObject, kernel: Kernel, left_out: Mapping[int, str], effort: Effort) -> None:
        self.left_out = left_out
        self.effort = effort
        self.pointed: frozenset[int] = frozenset()
        self.object = object
        self.kernel = kernel
        self.isa = Isa.of(object.target, kernel.wave_size)
        self.text = text_of(object, self.isa)
        self.explorer = Explorer(self.text, kernel.name)
        descriptor = kernel.descriptor
        vectors = r.mask_of(r.VGPRS[: descriptor.architected_vgprs]) | r.mask_of(r.AGPRS[: descriptor.agprs])
        self.table = effect_table(self.isa, vectors)
        self.slots = CodeSlots(object, self.text)
        self.hardware_entries = [kernel.entry]
        if descriptor.hardware_entry:
            self.hardware_entries.append(kernel.entry + descriptor.hardware_entry)
        cache = _analyses.get(self.text)
        if cache is None:
            cache = _analyses.setdefault(self.text, search_cache(self.isa, MOST_ANALYSES))
        self.known = known_functions(self.isa, cache, self.hardware_entries)
        self.analysed = 0
        """Number of functions that are analysed, the first of `Explorer.functions`."""
        self.vgpr_bits: dict[int, int | None] = {}

    def run(self) -> LiftedRepresentation:
        explorer = self.explorer
        banks: VgprBanks | None = None
        explorer.add_functions([self.kernel.entry])
        for address in self.hardware_entries[1:]:
            explorer.reach(address, self.kernel.entry)
        for _ in range(MOST_ROUNDS):
            code, columns = explorer.code()
            self.effort.allow(len(code))
            graph = build_graph(explorer, self.known, self.hardware_entries, self.effort)
            if self.object.target.target.addressable_vgprs > self.object.target.target.named_vgprs:
                banks = VgprBanks(self.table, columns, graph, self.hardware_entries, explorer.fail)
                code = banks.meant(code)
                columns = Columns(code)
            if not self._resolve(columns, graph):
                break
            if banks is None:
                self._discover()
        else:
            raise explorer.fail(
                f"no fixpoint of the targets of indirect jumps in {MOST_ROUNDS} rounds", self.kernel.entry
            )
        regions = find_regions(graph, self.hardware_entries, columns, self.table, explorer.fail)
        if not self.isa.target.target.decodes_all:
            regions.restrictions |= _unknown_instructions(code)
        if banks is not None:
            banks.check_calls()
            self.vgpr_bits = banks.restored()
            for index, bits in self.vgpr_bits.items():
                if bits is None:
                    regions.restrictions[index] = "where unknown upper bits of VGPR numbers are used"
        return self._represent(code, columns, graph, regions)

    # Register jumps and calls

    def _resolve(self, columns: Columns, graph: Graph) -> bool:
        """Find the targets of indirect jumps and calls. Return whether anything changed."""
        before = self.explorer.counts()
        every = self.explorer.functions()[::-1]  # callees mostly before their callers
        # While new functions appear, analyse only these; analyse their callers once, when all functions are known.
        new = self._unanalysed()
        some = 0 < len(new) < len(every)
        changed = self._analyse(new if some else every, columns, graph)
        return some or changed or before != self.explorer.counts()

    def _discover(self) -> None:
        """Find the functions that those not analysed yet call, and so on.

        Each is analysed with its own code alone, so the time is linear in the code whatever the depth of calls.
        """
        new = self._unanalysed()
        sizes = self.explorer.sizes() if new else {}
        instructions = sum(sizes.values())
        while new:
            explorer = Explorer(self.text, self.kernel.name, self.explorer)
            explorer.add_functions(new)
            for start, size in explorer.sizes().items():
                instructions += max(0, size - sizes.get(start, 0))
                sizes[start] = max(size, sizes.get(start, 0))
            self.effort.allow(instructions)
            _, columns = explorer.code()
            # Known targets of jumps in shared blocks may not be in this code, so it is analysed without them.
            graph = build_graph(explorer, None, [], self.effort)
            self._analyse(new, columns, graph, alone=True)
            new = self._unanalysed()

    def _unanalysed(self) -> list[int]:
        """Return the functions that are not analysed yet, the newest first, and count them as analysed."""
        new = self.explorer.functions(self.analysed)
        self.analysed += len(new)
        return new[::-1]

    def _analyse(self, entries: list[int], columns: Columns, graph: Graph, *, alone: bool = False) -> bool:
        """Analyse functions, and explore the targets of their jumps and calls. Return whether any result changed.

        Args:
            alone: whether the graph is of these functions and those that they call directly.
        """
        if not graph.marks & Mark.ADDRESS:
            return False
        analysis = AddressAnalysis(columns, graph, self.table, self.explorer, self.slots, self.known, self.effort)
        return analysis.run(entries, partial(self._with_pointed, columns), alone=alone)

    def _with_pointed(self, columns: Columns, index: int, reason: str) -> tuple[str, list[int]] | None:
        """Return the reason why a jump or call is known incompletely, and the functions that pointers lead to.

        None if pointers are not followed there.
        """
        if pointer_pair(self.isa, self.table, columns, index) is None:
            return None
        pointed = pointed_functions(self.object, self.text)
        if len(pointed) > MOST_POINTED:
            return f"{reason} (pointers to {len(pointed)} functions are not followed; the limit is {MOST_POINTED})", []
        left_out = sorted(pointed & self.left_out.keys())
        if left_out:
            pointed = pointed.difference(left_out)
            why = f"{len(left_out)} possible targets cannot be lifted, such as {self.left_out[left_out[0]]}"
            reason = f"{reason}, and {why}"
        self.pointed = pointed
        return reason, sorted(pointed)

    # The public form

    def _represent(
        self, code: InstructionArray, columns: Columns, graph: Graph, regions: Regions
    ) -> LiftedRepresentation:
        references = self._references(columns, graph) if graph.marks & Mark.ADDRESS else ()
        computed = {columns.address[reference.getpc] for reference in references if reference.low < 0}
        direct_jumps = self._direct_jumps(columns, graph, computed)
        reference_of = {columns.address[reference.getpc]: number for number, reference in enumerate(references)}
        arranged, numbers, blocks, block_of = graph.native.arrange(len(code), EXITS, EDGE_KINDS, BasicBlock, Edge)
        function_at = {entry: number for number, entry in enumerate(graph.members)}
        pointers = {columns.address[each.getpc] for each in references if each.kind in ("pointer", "value")}
        replaced = {jump.index for jump in direct_jumps}
        unknown: dict[int, Unknown] = {}
        functions: list[Function] = []
        for number, (entry, members) in enumerate(graph.members.items()):
            calls: list[CallSite] = []
            for member in members if graph.jumps else ():
                jump = graph.jumps.get(member)
                if jump is None:
                    continue
                last, exit, resolution = graph.last[member], graph.exits[member], jump.resolution
                if resolution is not None and resolution.reason:
                    unknown[last] = Unknown(last, resolution.reason)
                if exit not in ("call", "tail") and not (exit == "unknown" and jump.targets):
                    continue
                by_pointer = resolution is not None and (
                    resolution.reason or not pointers.isdisjoint(resolution.references)
                )
                calls.append(
                    CallSite(
                        last,
                        "call" if exit == "call" else "tail",
                        tuple(function_at[target] for target in jump.targets if target in function_at),
                        resolution is None or not resolution.reason,
                        next((numbers[to] for _, to in graph.successors(member)), None),
                        self.explorer.native.link_of(columns.registers(last)[0]) if exit == "call" else None,
                        pointer_pair(self.isa, self.table, columns, last)
                        if by_pointer and last not in replaced
                        else None,
                        tuple(
                            reference_of[getpc]
                            for getpc in (resolution.references if resolution is not None else ())
                            if getpc in reference_of
                        ),
                        resolution.slots if resolution is not None else (),
                    )
                )
            extent = self.text.functions.get(entry)
            functions.append(
                Function(
                    number,
                    self.kernel.name if number == 0 else extent.name if extent is not None else f"sub_{entry:x}",
                    entry,
                    tuple([blocks[numbers[member]] for member in members]),
                    numbers[graph.native.at(entry)],
                    tuple(calls),
                    number == 0,
                )
            )
        return LiftedRepresentation(
            object=self.object,
            kernel=self.kernel,
            target=self.object.target.target,
            isa=self.isa,
            wave_size=self.kernel.wave_size,
            hardware_entries=tuple(self.hardware_entries),
            code=code,
            functions=tuple(functions),
            blocks=tuple(blocks),
            arranged=arranged,
            block_of=listed(block_of),
            pc_references=references,
            direct_jumps=direct_jumps,
            code_tables=self._tables(columns, graph, references),
            unknown=tuple(unknown[index] for index in sorted(unknown)),
            clauses=tuple(regions.clauses),
            restrictions=dict(sorted(regions.restrictions.items())),
            releases=tuple(sorted(regions.releases)),
            released=frozenset(regions.released),
            columns=columns,
            effect_table=self.table,
            index_mode=dict(sorted(regions.indexed.items())),
            vgpr_bits=self.vgpr_bits,
            skipped=dict(sorted(regions.skipped.items())),
        )

    def _references(self, columns: Columns, graph: Graph) -> tuple[PcReference, ...]:
        """Return all references in the order of their s_getpc_b64.

        Raises:
            LiftError: a program counter is used in a way that does not allow moving the code.
        """
        additions, computed, escapes, values = self.known.found()
        for _, _, resolution in graph.resolved():
            if resolution.targets and not _goes_one_way(resolution):
                # A call by pointer compares addresses of the original code.
                escapes.update(resolution.references if resolution.direct else computed & set(resolution.references))
        computed |= escapes
        direct = {  # flows into jumps that cannot be redirected
            getpc
            for last, exit, resolution in (graph.resolved() if values else ())
            if exit == "branch" or pointer_pair(self.isa, self.table, columns, last) is None
            for getpc in resolution.references
        }
        references: list[PcReference] = []
        adds: dict[int, tuple[int, int, int, int]] = {}
        for getpc, low, high, offset in additions:
            for add in (low, high):
                other = adds.setdefault(add, (getpc, low, high, offset))
                if other[0] != getpc:
                    raise self.explorer.fail("an addition is shared by several s_getpc_b64", add)
            if getpc not in computed:
                target = getpc + GETPC_SIZE + offset & 0xFFFFFFFFFFFFFFFF
                first, second, third = (_index_of(columns, address) for address in (getpc, low, high))
                kind: Literal["code", "pointer", "data"] = "code" if _is_reached(columns, graph, target) else "data"
                if kind == "code" and getpc in values and target in graph.members and getpc not in direct:
                    kind = "pointer"
                references.append(PcReference(first, second, third, target, kind))
        for getpc in sorted(computed):
            use: Literal["value", "computed"] = "value" if getpc in escapes else "computed"
            references.append(PcReference(_index_of(columns, getpc), -1, -1, getpc + GETPC_SIZE, use))
        return tuple(sorted(references, key=lambda reference: (reference.getpc, reference.low)))

    def _direct_jumps(self, columns: Columns, graph: Graph, computed: set[int]) -> tuple[DirectJump, ...]:
        jumps: list[DirectJump] = []
        for last, exit, resolution in graph.resolved():
            if not resolution.targets:
                continue
            if not resolution.direct and computed.isdisjoint(resolution.references):
                continue
            if _goes_one_way(resolution):
                jumps.append(DirectJump(last, resolution.targets[0]))
            elif exit == "branch" or pointer_pair(self.isa, self.table, columns, last) is None:
                raise self.explorer.fail(
                    "a computed jump with several targets cannot be retargeted", columns.address[last]
                )
        return tuple(jumps)

    def _tables(self, columns: Columns, graph: Graph, references: tuple[PcReference, ...]) -> tuple[CodeTable, ...]:
        """Return the constant words with targets of calls; adjacent words with the same references form one table."""
        reached: dict[int, set[int]] = {}
        for _, _, resolution in graph.resolved():
            for slot in resolution.slots:
                reached.setdefault(slot, set()).update(resolution.references)
        words = [(slot, self.slots.value(slot), getpcs) for slot, getpcs in sorted(reached.items())]
        tables: list[CodeTable] = []
        run: list[tuple[int, int]] = []
        for number, (slot, target, getpcs) in enumerate(words):
            if target is not None:
                run.append((slot, target))
            following = words[number + 1] if number + 1 < len(words) else None
            if run and (following is None or following[0] != slot + 8 or following[2] != getpcs):
                by = tuple(
                    index for index, reference in enumerate(references) if columns.address[reference.getpc] in getpcs
                )
                tables.append(CodeTable(run[0][0], tuple(target for _, target in run), by))
                run = []
        return tuple(tables)


def pointer_pair(isa: Isa, table: EffectTable, columns: Columns, index: int) -> int | None:
    """Return the first unit of the SGPRs with the address of an indirect jump or call.

    None if the return address overwrites the same registers, so that the address could not be examined.
    """
    is_call = table.opcode(columns.opcode[index]).control == Control.CALL_REGISTER
    units = [int(isa.register_first_unit[register]) if register else -1 for register in columns.registers(index)]
    pair = units[1 if is_call else 0]
    if pair not in (*r.SGPRS, r.VCC_LO) or (is_call and (units[0] not in r.SGPRS or abs(units[0] - pair) < 2)):
        return None
    return pair


def _goes_one_way(resolution: Resolution) -> bool:
    return len(resolution.targets) == 1 and not resolution.reason


def _index_of(columns: Columns, address: int) -> int:
    """Return the index of the instruction at an address, which must exist."""
    return bisect.bisect_left(columns.address, address)


def _is_reached(columns: Columns, graph: Graph, address: int) -> bool:
    """Return whether control reaches an instruction that begins at an address."""
    index = _index_of(columns, address)
    return index < len(columns.address) and columns.address[index] == address and graph.block_of(index) >= 0


def _unknown_instructions(code: InstructionArray) -> dict[int, Restriction]:
    """Return the restrictions before instructions of which only the length is known."""
    return dict.fromkeys((code.opcode < 0).nonzero()[0].tolist(), "before an instruction that LLVM does not know")
