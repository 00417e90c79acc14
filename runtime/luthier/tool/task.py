"""The `InstrumentationTask`: the hooks, counts and edits that tools request for one kernel."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from msgspec.structs import replace

from luthier.errors import HookError, PatchError
from luthier.isa import RegisterRange
from luthier.isa.registers import SGPRS
from luthier.lifting import BasicBlock, ControlEdge, Function, Instruction, LiftedRepresentation, Loop
from luthier.module import Hook, LoadedModule
from luthier.objects.names import is_selected
from luthier.objects.source import select_lines
from luthier.payload import EveryWorkGroup
from luthier.support.named_tuples import new_tuple
from luthier.tool import arguments as computed
from luthier.tool import edits, points
from luthier.tool.arguments import LaunchOperand, SiteValue
from luthier.tool.counts import Cell, CounterBudget, CountRequest, Granularity, Per
from luthier.tool.edits import Edit
from luthier.tool.guards import Guard
from luthier.tool.hook_budget import HookBudget, OnExcess
from luthier.tool.hook_calls import HookArgument, HookCall, HookCalls, Insertion, check_values, reg
from luthier.tool.options import Option, PatchOptions
from luthier.tool.points import Place

__all__ = ["HookArgument", "HookCall", "Insertion", "InstrumentationTask", "reg"]

MOST_INSERTIONS = 1 << 19
"""Maximum number of hooks in one kernel. Each takes at least half a kilobyte until the kernel is patched."""


class InstrumentationTask:
    """Collects the changes to one kernel. Several hooks at one point run in the order in which they were inserted.

    Args:
        lifted: the kernel, as `luthier.lift` returns it.
        options: patching options. A tool may change them through the attributes below.

    Attributes:
        options: the current patching options.
        insertions: the hooks, in the order in which they were inserted.
        counts: the requested counts.
        edits: changes to the application's own instructions.
        counter_budget: registers that counters may use.
        hook_budget: registers that hooks may use. None means *keep* (`HookBudget.on_excess`), without a report.
        waves_given: whether the reader of the counters knows the number of launched waves. This is true of devices
            that Luthier opens and of `luthier run`. Waves then need not be counted, and code without branches needs
            no counter.
        solve_sums: whether the reader of counted variables adds the sums that follow from counters, as `luthier run`
            and `luthier.devices.in_process.HereRun` do. A sum then costs no more than a profile. Variables that
            hooks or unknown device code use other than by adding to them still get complete sums in memory.
        most_stack: bytes of private memory, beyond its fixed size, that a kernel with a dynamic stack may use
            (recursion, calls by pointers, `alloca`). Hooks use the memory above that, so a larger stack would
            overwrite it; `luthier run` then launches the original. None means unknown: hooks that need private memory
            are refused in such kernels.
        wave_rows: number of rows for waves (`count` with the granularity "wave"), over all launches. Further waves
            have no row and are counted in `WaveCounts.missing`.
        hoist: whether counts replace hooks that only count. Variables get the same values, but only when waves
            end.
    """

    HOIST = True
    """Default of `hoist` if the options do not set it."""

    counter_budget = Option[CounterBudget]()
    hook_budget = Option[HookBudget | None]()
    waves_given = Option[bool]()
    solve_sums = Option[bool]()
    most_stack = Option[int | None]()
    wave_rows = Option[int]()
    hoist = Option[bool]()

    def __init__(self, lifted: LiftedRepresentation, options: PatchOptions | None = None) -> None:
        self.lifted = lifted
        self.insertions: list[Insertion] = []
        self.counts: list[CountRequest] = []
        self.edits: list[Edit] = []
        options = PatchOptions() if options is None else options
        self.options = replace(options, hoist=self.HOIST) if options.hoist is None else options
        self._left_out: list[str] = []
        self._given: set[int] = set()
        """Register units that `spare_sgprs` has returned."""
        self._groups: EveryWorkGroup | None = None
        self._calls = HookCalls(lifted.kernel.name)

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Yield every reachable instruction of the kernel and of the functions it calls, in address order.

        Undecodable words are left out.
        """
        opcodes = self.lifted.columns.opcode
        for index, block in enumerate(self.lifted.block_of):
            if block >= 0 and opcodes[index] >= 0:
                yield Instruction(self.lifted, index)

    def select(
        self,
        where: Callable[[Instruction], bool] = lambda instruction: True,
        *,
        functions: Iterable[str] = (),
        source: str | Iterable[str] = (),
        every: int = 1,
        share: float = 1.0,
        seed: int = 0,
    ) -> list[Instruction]:
        """Return the `instructions` that match all filters, in address order.

        Args:
            where: predicate, e.g. ``lambda instruction: instruction.is_load``.
            functions: symbols, C++ names, or globs of either; a leading ``!`` excludes. Empty: all functions.
            source: source lines, one or more of ``FILE``, ``FILE:12``, ``FILE:12-20``, ``FILE:12,15-18`` and ``:12``.
                FILE is the end of a path, or a glob of it. Inlined code also belongs to the line of the call. Empty:
                all lines.
            every: keep the first match and every `every`-th one after it.
            share: keep each of the remaining matches with this probability, from 0 to 1.
            seed: seed of the random choice; equal seeds give equal choices.

        Raises:
            HookError: `every` or `share` is out of range.
            ObjectError: lines are given, but the object has line information for none of the instructions, for example
                because it was compiled without ``-g``; `CodeObject.source` has the reason.
        """
        if every < 1 or not 0 <= share <= 1:
            raise HookError(
                f"every must be at least 1 and share from 0 to 1, not {every} and {share}",
                kernel=self.lifted.kernel.name,
            )
        patterns, lifted = list(functions), self.lifted
        wanted = {function.index for function in lifted.functions if is_selected(function.name, patterns)}
        candidates = [each for each in self.instructions if lifted.blocks[each.block].function in wanted]
        lines = [source] if isinstance(source, str) else list(source)
        if lines:
            addresses = [each.address for each in candidates]
            selected = select_lines(lifted.object.source, addresses, lines, object=lifted.object.name)
            candidates = list(itertools.compress(candidates, selected))
        matches = [each for each in candidates if where(each)][::every]
        random = Random(seed)
        return [each for each in matches if share == 1 or random.random() < share]

    def sample_workgroups(self, every: int, first: int = 0) -> None:
        """Run hooks that are inserted from now on only in work-groups whose x and y add up to `first` modulo `every`.

        In a one-dimensional grid, that is every `every`-th work-group. Counts without hooks cover all work-groups.

        Raises:
            HookError: `first` or `every` is out of range.
        """
        if not 0 <= first < every < 1 << 31:
            raise HookError(
                f"sample_workgroups needs 0 <= first < every < {1 << 31}, not first {first} and every {every}",
                kernel=self.lifted.kernel.name,
            )
        self._groups = None if every == 1 else EveryWorkGroup(every, first)

    def budget(
        self,
        registers: int | None = None,
        occupancy: int | None = None,
        on_excess: OnExcess = "keep",
        every: int = 16,
    ) -> None:
        """Limit the vector registers that the kernel's hooks may use (`HookBudget`).

        Args:
            registers: maximum number of VGPRs per wave.
            occupancy: waves per SIMD that must remain possible. Default if `registers` is None: as many as without
                hooks.
            on_excess: policy for hooks that need more: *keep*, *refuse*, *spill* or *sample*.
            every: for *sample*, keep one of this many such hooks.

        Raises:
            HookError: a value is invalid.
        """
        self.hook_budget = HookBudget(registers, occupancy, on_excess, every)

    def spare_sgprs(self, count: int) -> RegisterRange | None:
        """Reserve SGPRs that nothing in the kernel names. Each call returns different ones.

        The kernel allocates them if an edit or guard names them. Write them, by an edit or a hook, before reading them.

        Args:
            count: number of registers; of several, the first is even.

        Returns:
            None if too few are left, or if control reaches unknown code, which may use all of them.
        """
        lifted = self.lifted
        if lifted.unknown:
            return None
        inputs = lifted.kernel.descriptor.sgpr_inputs.values()
        named = {int(unit) for unit in lifted.named_units}
        first = max([0, *(at + size for at, size in inputs), *(unit - SGPRS[0] + 1 for unit in named & {*SGPRS})])
        budget = self.hook_budget
        end = lifted.target.sgpr_limit
        if budget is not None and budget.on_excess != "keep":
            end = budget.sgpr_limit(lifted)
        step = 1 + (count > 1)
        for at in range(-(-first // step) * step, end - count + 1, step):
            register = RegisterRange(SGPRS[at], count)
            if self._given.isdisjoint(register.units):
                self._given.update(register.units)
                return register
        return None

    @property
    def modules(self) -> list[LoadedModule]:
        """Return the modules of all hooks, and of all variables that receive counts."""
        called = [call.hook.module for call in dict.fromkeys(map(operator.attrgetter("call"), self.insertions))]
        counted = [request.into.module for request in self.counts if request.into is not None]
        by_id = {id(module): module for module in (*called, *counted)}
        return list(by_id.values())

    def operand(self, instruction: Instruction, which: str | int) -> RegisterRange | SiteValue:
        """Return the value of an operand, as an argument for a parameter of its width.

        The value of a register is its contents where the hook runs; of a half register, its 16 bits. The value of a
        literal or inline constant is its LLVM encoding: 1.0 as a 32-bit operand is 0x3f800000. Source modifiers are not
        applied.

        Args:
            instruction: one of `instructions`.
            which: LLVM's name of the operand (``vdst``, ``src0``, ``vaddr``, ``vdata``, ``saddr``, …), or its position
                in ``instruction.operands``.

        Raises:
            HookError: the instruction has no such operand, or hooks cannot read the operand.
        """
        return computed.operand(self.lifted, instruction, which)

    def effective_address(self, instruction: Instruction, which: int = 0) -> SiteValue:
        """Return the address that an instruction accesses, as an argument for a 64-bit integer or a pointer.

        There is one address per lane, or one per wave for scalar memory:

        - global and flat: the 64-bit address;
        - LDS: the byte offset in LDS, with 32 bits, which also fits 32-bit parameters;
        - scratch: the byte offset in the lane's private memory (its address in address space 5), likewise;
        - buffer: the sum of base, offsets and index times stride, without a bounds check. All bits are one if the
          descriptor swizzles addresses or adds the lane number, as for stacks, and on gfx1250 if it may do so;
        - copies between memory and LDS: the address in memory.

        Args:
            instruction: one of `instructions`; `Instruction.memory` describes the access.
            which: 1 for the second address of LDS instructions with two offsets.

        Raises:
            HookError: the instruction accesses no memory, or its address cannot be computed, with the reason.
        """
        return computed.effective_address(self.lifted, instruction, which)

    def access_size(self, instruction: Instruction) -> int:
        """Return the number of bytes that a memory instruction accesses at each address, per active lane.

        Raises:
            HookError: the instruction accesses no memory, or a descriptor or data format determines the size.
        """
        access = instruction.memory
        if access is not None and access.size is not None:
            return access.size
        reason = "it accesses no memory" if access is None else access.unaddressable
        raise HookError(
            f"{instruction.text!r}: {reason or 'its data format determines the size of the access'}",
            kernel=self.lifted.kernel.name,
            offset=instruction.address,
        )

    def predicate(self, instruction: Instruction) -> SiteValue:
        """Return whether an instruction will take effect, as an argument for a ``bool`` or an integer.

        For a conditional branch: whether it will be taken; for a conditional scalar move: whether it will move. For
        other instructions the value is 1, since hooks run in the active lanes, which execute the instruction.

        Raises:
            HookError: hooks cannot read the condition of the branch.
        """
        return computed.predicate(self.lifted, instruction)

    def workgroup_id(self, axis: int) -> LaunchOperand:
        """Return the work-group's id in dimension 0, 1 or 2 (``blockIdx``), as an argument for an integer parameter.

        Raises:
            HookError: `axis` is not 0, 1 or 2.
        """
        return LaunchOperand(f"llvm.amdgcn.workgroup.id.{self._axis(axis)}")

    @property
    def third_workgroup_id(self) -> LaunchOperand | None:
        """Return `workgroup_id` of dimension 2, or None if hooks cannot read it.

        They cannot if the ids of y and z arrive in one register and the kernel does not enable that of z.
        """
        descriptor = self.lifted.kernel.descriptor
        if self.lifted.target.launch_ttmps is not None and not descriptor.enable_sgpr_workgroup_id_z:
            return None
        return self.workgroup_id(2)

    def workitem_id(self, axis: int) -> LaunchOperand:
        """Return the work-item's id in its work-group in dimension 0, 1 or 2 (``threadIdx``), like `workgroup_id`."""
        return LaunchOperand(f"llvm.amdgcn.workitem.id.{self._axis(axis)}")

    def kernel_argument(self, which: str | int) -> LaunchOperand:
        """Return the value of one of the kernel's arguments, as an argument for a parameter of its size.

        Args:
            which: its name in the kernel's metadata, or its position among the explicit arguments.

        Raises:
            HookError: there is no such argument, several have the name, or it lies outside the kernarg segment.
        """
        explicit = [argument for argument in self.lifted.kernel.arguments if not argument.hidden]
        if isinstance(which, str):
            matches = [argument for argument in explicit if argument.name == which]
        else:
            matches = explicit[which : which + 1] if which >= 0 else []
        if len(matches) != 1:
            names = ", ".join(argument.name or f"#{number}" for number, argument in enumerate(explicit))
            problem = f"several arguments are called {which!r}" if matches else f"there is no argument {which!r}"
            raise HookError(f"{problem}; the kernel has {names or 'none'}", kernel=self.lifted.kernel.name)
        (argument,) = matches
        if not self.lifted.kernel.has_room_for(argument):
            raise HookError(
                f"argument {which!r} at byte {argument.offset} lies beyond the kernel's arguments",
                kernel=self.lifted.kernel.name,
            )
        return LaunchOperand("llvm.amdgcn.kernarg.segment.ptr", argument.offset, argument.size)

    def _axis(self, axis: int) -> str:
        if axis not in (0, 1, 2):
            raise HookError(f"there is no dimension {axis!r}; use 0, 1 or 2", kernel=self.lifted.kernel.name)
        return "xyz"[axis]

    def leave_out(self, reason: str) -> None:
        """Record that a tool could not instrument something.

        If nothing is inserted into the kernel, this distinguishes a kernel that could not be instrumented from one
        that contains nothing to instrument, which is not an error.
        """
        self._left_out.append(reason)

    @property
    def left_out(self) -> list[str]:
        """Return the reasons given to `leave_out`."""
        return list(self._left_out)

    def insert_hook_before(
        self, instruction: Instruction | int, hook: Hook, *arguments: HookArgument, only_if: Sequence[str] = ()
    ) -> None:
        """Insert a call to `hook` before `instruction`. It runs however control reaches the instruction.

        Args:
            instruction: one of `instructions`, or its index.
            hook: a hook of a `ToolModule`.
            arguments: one per parameter, for example a Python number for a constant, or `reg` for a register's value.
            only_if: comparisons in assembly that write ``{vcc}``, such as ``v_cmp_class_f32_e64 {vcc}, v4, 3``. If
                none is true in any lane, the hook may be skipped, at the cost of the comparisons. This is a hint:
                if registers are short, the hook runs regardless.

        Raises:
            HookError: the instruction does not exist, the number or types of the arguments do not match, or `only_if`
                contains something other than such comparisons.
        """
        self._insert("before", instruction, hook, arguments, self._guard(only_if))

    def insert_hook_after(
        self, instruction: Instruction | int, hook: Hook, *arguments: HookArgument, only_if: Sequence[str] = ()
    ) -> None:
        """Insert a call to `hook` after `instruction`. See `insert_hook_before` for the arguments.

        For a branch, the hook runs on every outgoing edge; for a call, when the call returns.

        Raises:
            HookError: as for `insert_hook_before`, or the successor is unknown (program end, return, indirect jump).
        """
        guard = self._guard(only_if)
        for point in points.behind(self.lifted, self._index(instruction)):
            self._insert(point.place, point.at, hook, arguments, guard)

    def insert_hook_at_block(self, block: BasicBlock, hook: Hook, *arguments: HookArgument) -> None:
        """Insert a call to `hook` at the beginning of `block` (one of ``lifted.blocks``)."""
        self._insert("before", block.first, hook, arguments)

    def insert_hook_on_edge(self, edge: ControlEdge, hook: Hook, *arguments: HookArgument) -> None:
        """Insert a call to `hook` on `edge` (one of ``lifted.edges``).

        Raises:
            HookError: the edge does not exist, or it is an indirect jump.
        """
        point = points.edge_point(self.lifted, edge)
        self._insert(point.place, point.at, hook, arguments)

    def insert_hook_at_loop_header(self, loop: Loop, hook: Hook, *arguments: HookArgument) -> None:
        """Insert a call to `hook` that runs at the start of every iteration of `loop` (one of ``lifted.loops``)."""
        for header in loop.headers:
            self._insert("before", self.lifted.blocks[header].first, hook, arguments)

    def insert_hook_on_back_edges(self, loop: Loop, hook: Hook, *arguments: HookArgument) -> None:
        """Insert a call to `hook` that runs at the start of every iteration of `loop` except the first.

        Raises:
            HookError: a back edge is an indirect jump.
        """
        for block in sorted(loop.blocks):
            for edge in self.lifted.blocks[block].successors:
                if edge.to in loop.headers:
                    self.insert_hook_on_edge(ControlEdge(block, edge.to, edge.kind), hook, *arguments)

    def insert_hook_at_function_entry(self, function: Function, hook: Hook, *arguments: HookArgument) -> None:
        """Insert a call to `hook` at the entry of `function` (one of ``lifted.functions``).

        In a function the hook runs on every call, in the kernel when each wave starts.

        Raises:
            HookError: the function's code branches back to its first instruction.
        """
        point = points.function_entry(self.lifted, function)
        self._insert(point.place, point.at, hook, arguments)

    def insert_hook_at_function_return(self, function: Function, hook: Hook, *arguments: HookArgument) -> None:
        """Insert a call to `hook` before each return and tail call of `function`.

        Raises:
            HookError: the function is the kernel, or contains a jump with unknown targets.
        """
        for point in points.function_returns(self.lifted, function):
            self._insert(point.place, point.at, hook, arguments)

    def insert_hook_at_kernel_entry(self, hook: Hook, *arguments: HookArgument) -> None:
        """Insert a call to `hook` that runs once in each wave, when the wave starts.

        Raises:
            HookError: a kernel with preloaded arguments branches back to its entry.
        """
        self.insert_hook_at_function_entry(self.lifted.functions[0], hook, *arguments)

    def insert_hook_at_kernel_exit(self, hook: Hook, *arguments: HookArgument) -> None:
        """Insert a call to `hook` before each program end, in the kernel and in the functions it calls.

        A wave that ends without active lanes runs only hooks that run once per wave.
        """
        for point in points.kernel_exits(self.lifted):
            self._insert(point.place, point.at, hook, arguments)

    def add_before(self, instruction: Instruction | int, text: str) -> None:
        """Add assembly to the application before an instruction, after the hooks inserted there.

        The text is added as it is: no registers are saved, and no waits or wait states are added between its own
        instructions.

        Raises:
            PatchError: the text does not assemble; it contains a branch, call, program end, message or barrier, or uses
                the program counter, a mode, or a register outside the target's limits.
        """
        self.edits.append(edits.adding(self.lifted, self._index(instruction), "before", text))

    def add_after(self, instruction: Instruction | int, text: str) -> None:
        """Add assembly after an instruction, before the hooks inserted there, like `add_before`.

        Raises:
            PatchError: as for `add_before`, or the instruction transfers control.
        """
        self.edits.append(edits.adding(self.lifted, self._index(instruction), "after", text))

    def remove(self, instruction: Instruction | int) -> None:
        """Remove an instruction. A memory instruction is replaced by a wait for all memory operations, because later
        waits count it.

        Raises:
            PatchError: the instruction transfers control, sets a mode, is part of a PC-relative address, or is already
                replaced.
        """
        self.replace(instruction, "")

    def replace(self, instruction: Instruction | int, text: str) -> None:
        """Replace an instruction by assembly, with the rules of `add_before` and `remove`."""
        self._replace(edits.adding(self.lifted, self._index(instruction), "instead", text))

    def change_operand(self, instruction: Instruction, which: str | int, value: RegisterRange | int) -> None:
        """Change one operand of an instruction.

        Args:
            instruction: one of `instructions`.
            which: LLVM's name of the operand, or its position in ``instruction.operands``.
            value: a register (`reg`), or an immediate in LLVM's encoding.

        Raises:
            PatchError: as for `remove`, the operand cannot have the value, or LLVM encodes the original instruction
                differently.
        """
        self._replace(edits.changing(self.lifted, instruction, which, value))

    def _replace(self, edit: Edit) -> None:
        if any(other.at == edit.at and other.place == "instead" for other in self.edits):
            raise PatchError(
                "an instruction is replaced twice; replace or remove it only once",
                kernel=self.lifted.kernel.name,
                offset=self.lifted.columns.address[edit.at],
            )
        self.edits.append(edit)

    def count(
        self,
        sites: Iterable[Instruction | BasicBlock | int] | Instruction | BasicBlock | int,
        weight: int = 1,
        per: Per = "wave",
        into: Cell | None = None,
        granularity: Granularity = "total",
    ) -> CountRequest:
        """Count executions of instructions without hooks: in registers, with one atomic operation when a wave ends.

        Args:
            sites: instructions, their indices, or blocks, which count once per entry.
            weight: number to add per execution.
            per: "wave" adds the weight once per executing wave, "lane" once per active lane.
            into: cell in device memory to which each wave adds its sum when it ends. None: `KernelCounts.total`
                computes the sum from the counters, which then give the executions of every instruction in the
                functions concerned.
            granularity: "wave" also keeps the counts of each wave (`KernelCounts.waves`), for up to `wave_rows` waves.
                It excludes `into`.

        Raises:
            HookError: an instruction or cell does not exist, the weight does not fit 32 bits, or the granularity is
                "wave" and `into` is given.
        """
        lifted = self.lifted
        listed = [sites] if isinstance(sites, Instruction | BasicBlock | int) else sites
        indices = [self._index(site.first if isinstance(site, BasicBlock) else site) for site in listed]
        if not -(1 << 31) <= weight < 1 << 31:
            raise HookError(f"weight {weight} does not fit 32 bits", kernel=lifted.kernel.name)
        if per not in ("wave", "lane"):
            raise HookError(f"per must be wave or lane, not {per!r}", kernel=lifted.kernel.name)
        if granularity not in ("total", "wave"):
            raise HookError(f"granularity must be total or wave, not {granularity!r}", kernel=lifted.kernel.name)
        if into is not None:
            into.check()
            if granularity == "wave":
                raise HookError("`into` takes sums, not counts of each wave: leave it out", kernel=lifted.kernel.name)
        request = CountRequest(tuple((index, weight) for index in indices), per, into, granularity)
        self.counts.append(request)
        return request

    def _index(self, instruction: Instruction | int) -> int:
        index = instruction if isinstance(instruction, int) else instruction.index
        block_of = self.lifted.block_of
        if not 0 <= index < len(block_of) or block_of[index] < 0:
            raise HookError(f"there is no reachable instruction {index}", kernel=self.lifted.kernel.name)
        return index

    def _guard(self, only_if: Sequence[str]) -> Guard | None:
        return Guard.of(self.lifted, only_if) if only_if else None

    def _insert(
        self,
        place: Place,
        instruction: Instruction | int,
        hook: Hook,
        arguments: tuple[HookArgument, ...],
        guard: Guard | None = None,
    ) -> None:
        if len(self.insertions) >= MOST_INSERTIONS:
            raise PatchError(
                f"more than {MOST_INSERTIONS} hooks take too much memory; the kernel has "
                f"{len(self.lifted.code)} instructions: select fewer of them",
                kernel=self.lifted.kernel.name,
            )
        index = self._index(instruction)
        call, numbers = self._calls.of(hook, arguments, self._groups, guard)
        if call.made_at is not None:
            check_values(self.lifted, call, index, place)
        self.insertions.append(new_tuple(Insertion, (index, place, call, numbers)))
