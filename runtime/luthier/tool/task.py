"""The `InstrumentationTask`: what a tool does to one kernel, as hooks at points of the lifted kernel."""

from __future__ import annotations

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
"""Hooks in one kernel. Each takes half a kilobyte and more until the kernel is patched."""


class InstrumentationTask:
    """Collects what is to be spliced into one kernel. Several hooks at one point run in the order they were inserted.

    Args:
        lifted: the kernel, as `luthier.lift` gives it.
        options: how it is to be patched, until the tool says otherwise by one of the attributes below.

    Attributes:
        options: all that these say.
        insertions: the hooks, in the order they were inserted.
        counts: what is to be counted.
        edits: changes of the application's own instructions.
        counter_budget: registers that counters may use.
        hook_budget: registers that hooks may cost; None: as with on_excess *keep*, and unknown to reports.
        waves_given: whether who reads what was counted into no variable knows how many waves were launched, as devices
            that Luthier opens and `luthier run` do: then they need not be counted, and code without branches needs no
            counter at all.
        solve_sums: whether who reads the variables that are counted into adds what follows from counters, as
            `luthier run` and `luthier.devices.in_process.HereRun` do: then a sum costs no more than a profile. What
            hooks do with a variable but add to it, device code that is not known, needs all of it in memory: such
            variables get it there.
        most_stack: bytes of private memory beyond its fixed size that the kernel may use, where it has a dynamic stack
            (recursion, calls by pointers, `alloca`). Hooks have theirs above that, so a stack that gets larger
            overwrites it; `luthier run` launches the original then. None: not known, and hooks that need private
            memory are refused in such kernels.
        wave_rows: room for rows of waves (`count` with the granularity "wave"), over all launches. Waves beyond have no
            row and are in `WaveCounts.missing`.
        hoist: whether hooks that do nothing but count become counts. Variables get the same values, but not before
            waves end.
    """

    HOIST = True
    """What `hoist` is at first where the options do not say."""

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
        """Units that tools have for themselves (`spare_sgprs`)."""
        self._groups: EveryWorkGroup | None = None
        self._calls = HookCalls(lifted.kernel.name)

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Yield every reachable instruction of the kernel and of the functions it calls, in address order.

        Words that are no known instruction are left out.
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
        """Return some of `instructions`, in address order.

        Args:
            where: keeps those that it is true of, e.g. ``lambda one: one.is_load``.
            functions: names of functions to look in, symbols or C++ names or globs of either; one that begins with
                ``!`` leaves out. None: all.
            source: lines of the source to look in, one or more of ``FILE``, ``FILE:12``, ``FILE:12-20``,
                ``FILE:12,15-18`` and ``:12``. FILE is the end of a path or a glob of it. What was inlined by a call is
                of the call's line too. None: all.
            every: then every so many of them, from the first on.
            share: then each of them with this probability, from 0 to 1.
            seed: the same gives the same choice.

        Raises:
            HookError: `every` or `share` is no such number.
            ObjectError: lines are asked for, and the object tells those of none of the instructions, since it was not
                compiled with ``-g``, say; `CodeObject.source` says why.
        """
        if every < 1 or not 0 <= share <= 1:
            raise HookError(f"every {every} of a share of {share} is no selection", kernel=self.lifted.kernel.name)
        patterns, lifted = list(functions), self.lifted
        wanted = {function.index for function in lifted.functions if is_selected(function.name, patterns)}
        candidates = [one for one in self.instructions if lifted.blocks[one.block].function in wanted]
        lines = [source] if isinstance(source, str) else list(source)
        if lines:
            addresses = [one.address for one in candidates]
            taken = select_lines(lifted.object.source, addresses, lines, object=lifted.object.name)
            candidates = [one for one, is_taken in zip(candidates, taken, strict=True) if is_taken]
        found = [one for one in candidates if where(one)][::every]
        random = Random(seed)
        return [one for one in found if share == 1 or random.random() < share]

    def sample_workgroups(self, every: int, first: int = 0) -> None:
        """Let hooks that are inserted from now on run in some work-groups only: in those whose x and y together are
        `first` modulo `every`, of a one-dimensional grid every so many of them.

        What is counted without hooks is counted in all.

        Raises:
            HookError: there are no such work-groups.
        """
        if not 0 <= first < every < 1 << 31:
            raise HookError(f"work-groups {first} of every {every} do not exist", kernel=self.lifted.kernel.name)
        self._groups = None if every == 1 else EveryWorkGroup(every, first)

    def budget(
        self,
        registers: int | None = None,
        occupancy: int | None = None,
        on_excess: OnExcess = "keep",
        every: int = 16,
    ) -> None:
        """Say how many vector registers the kernel's hooks may cost, and what becomes of those that want more.

        Args:
            registers: VGPRs a wave at most.
            occupancy: waves a SIMD that must still have room. With neither, as many as without hooks.
            on_excess: *keep*, *refuse*, *spill* or *sample* (`HookBudget.on_excess`).
            every: at how many points too many are needed for one that is sampled.

        Raises:
            HookError: no such budget.
        """
        self.hook_budget = HookBudget(registers, occupancy, on_excess, every)

    def spare_sgprs(self, count: int) -> RegisterRange | None:
        """Return SGPRs that nothing in the kernel names, for one tool alone: other tools that ask get others.

        The kernel gets them where edits or guards name them. Whoever reads them must have written them before, by an
        edit or a hook.

        Args:
            count: how many; of several the first is even.

        Returns:
            None where there are none, or where control goes to unknown code, which may use all of them.
        """
        lifted = self.lifted
        if lifted.unknown:
            return None
        inputs = lifted.kernel.descriptor.sgpr_inputs.values()
        named = {int(unit) for unit in lifted.named_units}
        first = max([0, *(at + many for at, many in inputs), *(unit - SGPRS[0] + 1 for unit in named & {*SGPRS})])
        asked = self.hook_budget
        end = lifted.target.sgpr_limit
        if asked is not None and asked.on_excess != "keep":
            end = asked.sgpr_limit(lifted)
        step = 1 + (count > 1)
        for at in range(-(-first // step) * step, end - count + 1, step):
            register = RegisterRange(SGPRS[at], count)
            if self._given.isdisjoint(register.units):
                self._given.update(register.units)
                return register
        return None

    @property
    def modules(self) -> list[LoadedModule]:
        """Return the modules of all hooks and of all variables that are counted into."""
        called = [call.hook.module for call in dict.fromkeys(map(operator.attrgetter("call"), self.insertions))]
        counted = [request.into.module for request in self.counts if request.into is not None]
        found = {id(module): module for module in (*called, *counted)}
        return list(found.values())

    def operand(self, instruction: Instruction, which: str | int) -> RegisterRange | SiteValue:
        """Return the value of one of an instruction's operands, as an argument for a parameter of its width.

        The value of a register is what it holds where the hook runs; of a half register, its 16 bits. That of a literal
        or an inline constant is its bits as LLVM holds them: 1.0 of a 32-bit operand is 0x3f800000. Source modifiers
        are not applied.

        Args:
            instruction: one of `instructions`.
            which: LLVM's name of the operand (``vdst``, ``src0``, ``vaddr``, ``vdata``, ``saddr``, …), or its position
                among ``instruction.operands``.

        Raises:
            HookError: it has no such operand, or the operand has no value that hooks can be given.
        """
        return computed.operand(self.lifted, instruction, which)

    def effective_address(self, instruction: Instruction, which: int = 0) -> SiteValue:
        """Return the address that an instruction is about to access, as an argument for a 64-bit integer or a pointer.

        One per lane, or one per wave for scalar memory. Of global and flat instructions it is the 64-bit address; of
        LDS instructions the byte offset in LDS; of scratch instructions the byte offset in the lane's private memory
        (its address in address space 5); these two have 32 bits and also fit 32-bit parameters. Of buffer instructions
        it is what base, offsets, index and stride make, whether or not that is within the buffer; it is all ones where
        the descriptor swizzles addresses or adds the lane's number, as those of stacks do, and on gfx1250 where it may.
        Of copies between memory and LDS it is the address in memory.

        Args:
            instruction: one of `instructions`; `Instruction.memory` says what it accesses.
            which: 1 for the second address of LDS instructions with two offsets.

        Raises:
            HookError: it accesses no memory, or its address cannot be told, with the reason.
        """
        return computed.effective_address(self.lifted, instruction, which)

    def access_size(self, instruction: Instruction) -> int:
        """Return the bytes that a memory instruction accesses at each address, for each lane that is active.

        Raises:
            HookError: it accesses no memory, or a descriptor or the format of a buffer or image says how many.
        """
        access = instruction.memory
        if access is not None and access.size is not None:
            return access.size
        reason = "it accesses no memory" if access is None else access.unaddressable
        raise HookError(
            f"{instruction.text!r}: {reason or 'it accesses as much as a data format says'}",
            kernel=self.lifted.kernel.name,
            offset=instruction.address,
        )

    def predicate(self, instruction: Instruction) -> SiteValue:
        """Return whether an instruction is about to take effect, as an argument for a ``bool`` or an integer.

        For a conditional branch: whether it will be taken; for a conditional scalar move: whether it moves. For any
        other instruction it is 1: hooks run in the lanes that are active, and those execute it.

        Raises:
            HookError: a conditional branch on what hooks cannot see.
        """
        return computed.predicate(self.lifted, instruction)

    def workgroup_id(self, axis: int) -> LaunchOperand:
        """Return the work-group's id in dimension 0, 1 or 2 (``blockIdx``), as an argument for an integer parameter.

        Raises:
            HookError: there is no such dimension.
        """
        return LaunchOperand(f"llvm.amdgcn.workgroup.id.{self._axis(axis)}")

    @property
    def third_workgroup_id(self) -> LaunchOperand | None:
        """Return `workgroup_id` of dimension 2; None where hooks cannot have it.

        They cannot where ids arrive together and the kernel uses the second alone.
        """
        descriptor = self.lifted.kernel.descriptor
        if self.lifted.target.launch_ttmps is not None and not descriptor.enable_sgpr_workgroup_id_z:
            return None
        return self.workgroup_id(2)

    def workitem_id(self, axis: int) -> LaunchOperand:
        """Return the work-item's id in its work-group in a dimension (``threadIdx``), like `workgroup_id`."""
        return LaunchOperand(f"llvm.amdgcn.workitem.id.{self._axis(axis)}")

    def kernel_argument(self, which: str | int) -> LaunchOperand:
        """Return the value of one of the kernel's own arguments, as an argument for a parameter of its size.

        Args:
            which: its name in the kernel's metadata, or its position.

        Raises:
            HookError: there is no such argument, or several have the name; it lies beyond the kernel's arguments.
        """
        explicit = [argument for argument in self.lifted.kernel.arguments if not argument.hidden]
        if isinstance(which, str):
            found = [argument for argument in explicit if argument.name == which]
        else:
            found = explicit[which : which + 1] if which >= 0 else []
        if len(found) != 1:
            names = ", ".join(argument.name or f"#{number}" for number, argument in enumerate(explicit))
            raise HookError(
                f"the kernel has {'no' if not found else 'several'} argument {which!r}; it has {names or 'none'}",
                kernel=self.lifted.kernel.name,
            )
        if not self.lifted.kernel.has_room_for(found[0]):
            raise HookError(
                f"argument {which!r} at byte {found[0].offset} lies beyond the kernel's arguments",
                kernel=self.lifted.kernel.name,
            )
        return LaunchOperand("llvm.amdgcn.kernarg.segment.ptr", found[0].offset, found[0].size)

    def _axis(self, axis: int) -> str:
        if axis not in (0, 1, 2):
            raise HookError(f"there is no dimension {axis!r}", kernel=self.lifted.kernel.name)
        return "xyz"[axis]

    def leave_out(self, reason: str) -> None:
        """Note that a tool leaves out something that it was to instrument.

        A kernel into which nothing is inserted then could not be instrumented; otherwise there was nothing to
        instrument in it, which is no error.
        """
        self._left_out.append(reason)

    @property
    def left_out(self) -> list[str]:
        """Return the reasons for which tools have left out something (`leave_out`)."""
        return list(self._left_out)

    def insert_hook_before(
        self, instruction: Instruction | int, hook: Hook, *arguments: HookArgument, only_if: Sequence[str] = ()
    ) -> None:
        """Run `hook` whenever control is about to execute `instruction`, however it got there.

        Args:
            instruction: an instruction of `instructions`, or its index.
            hook: a hook of a `ToolModule`.
            arguments: one a parameter: a Python number for a constant, `reg` for a register's value.
            only_if: comparisons in assembly that write ``{vcc}``, as ``v_cmp_class_f32_e64 {vcc}, v4, 3``: where none
                is true in any lane the hook need not run, and costs no more than they do. They are a promise, not a
                condition: where registers are short it runs nevertheless.

        Raises:
            HookError: wrong number or type of arguments, or no such instruction; what is no such comparison.
        """
        self._insert("before", instruction, hook, arguments, self._guard(only_if))

    def insert_hook_after(
        self, instruction: Instruction | int, hook: Hook, *arguments: HookArgument, only_if: Sequence[str] = ()
    ) -> None:
        """Run `hook` when `instruction` has been executed: of a branch wherever control goes on, of a call when it has
        come back.

        Args:
            only_if: comparisons in assembly, as of `insert_hook_before`.

        Raises:
            HookError: also for ends, returns and jumps by register, after which control is nobody knows where.
        """
        guard = self._guard(only_if)
        for point in points.behind(self.lifted, self._index(instruction)):
            self._insert(point.place, point.at, hook, arguments, guard)

    def insert_hook_at_block(self, block: BasicBlock, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` whenever control enters `block` (one of ``lifted.blocks``)."""
        self._insert("before", block.first, hook, arguments)

    def insert_hook_on_edge(self, edge: ControlEdge, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` whenever control goes from a block to another by `edge` (one of ``lifted.edges``).

        Raises:
            HookError: there is no such edge, or it is a jump by register.
        """
        point = points.edge_point(self.lifted, edge)
        self._insert(point.place, point.at, hook, arguments)

    def insert_hook_at_loop_header(self, loop: Loop, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` whenever a wave begins a round of `loop` (one of ``lifted.loops``), the first one included."""
        for header in loop.headers:
            self._insert("before", self.lifted.blocks[header].first, hook, arguments)

    def insert_hook_on_back_edges(self, loop: Loop, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` whenever a wave begins another round of `loop`.

        Raises:
            HookError: it is a jump by register that leads back.
        """
        for block in sorted(loop.blocks):
            for edge in self.lifted.blocks[block].successors:
                if edge.to in loop.headers:
                    self.insert_hook_on_edge(ControlEdge(block, edge.to, edge.kind), hook, *arguments)

    def insert_hook_at_function_entry(self, function: Function, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` whenever `function` (one of ``lifted.functions``) is called; of the kernel, when a wave starts.

        Raises:
            HookError: its own code comes back to its first instruction.
        """
        point = points.function_entry(self.lifted, function)
        self._insert(point.place, point.at, hook, arguments)

    def insert_hook_at_function_return(self, function: Function, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` whenever `function` is about to go back to its caller, or to another function that does it instead
        (a tail call).

        Raises:
            HookError: it is the kernel, or nobody knows where it goes.
        """
        for point in points.function_returns(self.lifted, function):
            self._insert(point.place, point.at, hook, arguments)

    def insert_hook_at_kernel_entry(self, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` once when each wave starts.

        Raises:
            HookError: a kernel with preloaded arguments comes back to its beginning.
        """
        self.insert_hook_at_function_entry(self.lifted.functions[0], hook, *arguments)

    def insert_hook_at_kernel_exit(self, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` when each wave ends, wherever in the kernel or its functions that is.

        A wave that ends with no lane active runs only hooks that run once a wave.
        """
        for point in points.kernel_exits(self.lifted):
            self._insert(point.place, point.at, hook, arguments)

    def add_before(self, instruction: Instruction | int, text: str) -> None:
        """Add assembly to the application before an instruction: hooks before it run earlier.

        It runs as it stands: nothing is saved around it, and no wait or wait state is added.

        Raises:
            PatchError: it does not assemble, or what it does cannot be done there: branches, calls, ends, the program
                counter, modes, messages and barriers are refused; so are registers that no wave has.
        """
        self.edits.append(edits.adding(self.lifted, self._index(instruction), "before", text))

    def add_after(self, instruction: Instruction | int, text: str) -> None:
        """Add assembly after an instruction, as `add_before`; hooks after it run later.

        Raises:
            PatchError: also after branches and whatever else passes control on.
        """
        self.edits.append(edits.adding(self.lifted, self._index(instruction), "after", text))

    def remove(self, instruction: Instruction | int) -> None:
        """Take an instruction away. In the place of a memory instruction comes a wait for all of them, since later
        waits count them.

        Raises:
            PatchError: it is part of control flow, of an address made of the program counter, of a mode, or already
                replaced.
        """
        self.replace(instruction, "")

    def replace(self, instruction: Instruction | int, text: str) -> None:
        """Put assembly in the place of an instruction, as `add_before` and `remove`."""
        self._replace(edits.adding(self.lifted, self._index(instruction), "instead", text))

    def change_operand(self, instruction: Instruction, which: str | int, value: RegisterRange | int) -> None:
        """Give an instruction another operand.

        Args:
            instruction: one of `instructions`.
            which: LLVM's name of the operand, or its position among ``instruction.operands``.
            value: a register (`reg`), or an immediate as LLVM holds it.

        Raises:
            PatchError: it does not take the value, or LLVM does not encode the instruction as it is; and as `remove`.
        """
        self._replace(edits.changing(self.lifted, instruction, which, value))

    def _replace(self, edit: Edit) -> None:
        if any(one.at == edit.at and one.place == "instead" for one in self.edits):
            raise PatchError(
                "an instruction is replaced twice",
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
        """Count how often instructions run, without hooks: in registers, with few additions and one atomic operation
        when a wave ends.

        Args:
            sites: instructions, or their indices, or blocks, which count once when they are entered.
            weight: what each of them adds.
            per: "wave" adds the weight for each wave that runs it, "lane" for each lane that is active then.
            into: the number in device memory that it is added to, when each wave ends; None: the sum is found out when
                counters are read (`luthier.tool.counts.KernelCounts.total`), and with it how often everything in the
                functions concerned runs.
            granularity: "wave" gives what each wave counted besides, a row a wave (`KernelCounts.waves`), without
                `into`. There is room for `wave_rows` of them.

        Raises:
            HookError: no such instruction or cell, or a weight that is no 32-bit number; a row a wave into a cell.
        """
        lifted = self.lifted
        every = [sites] if isinstance(sites, Instruction | BasicBlock | int) else sites
        indices = []
        for site in every:
            indices.append(self._index(site.first if isinstance(site, BasicBlock) else site))
        if not -(1 << 31) <= weight < 1 << 31:
            raise HookError(f"a weight of {weight} does not fit 32 bits", kernel=lifted.kernel.name)
        if per not in ("wave", "lane"):
            raise HookError(f"counts are per wave or per lane, not per {per}", kernel=lifted.kernel.name)
        if granularity not in ("total", "wave"):
            message = f"counts have the granularity total or wave, not {granularity}"
            raise HookError(message, kernel=lifted.kernel.name)
        if into is not None:
            into.check()
            if granularity == "wave":
                raise HookError("what each wave counts is in no variable", kernel=lifted.kernel.name)
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
                f"more than {MOST_INSERTIONS} hooks take too much memory; the kernel's code has "
                f"{len(self.lifted.code)} instructions",
                kernel=self.lifted.kernel.name,
            )
        index = self._index(instruction)
        call, numbers = self._calls.of(hook, arguments, self._groups, guard)
        if call.made_at is not None:
            check_values(self.lifted, call, index, place)
        # Equivalent to Insertion(…), in half the time.
        self.insertions.append(tuple.__new__(Insertion, (index, place, call, numbers)))
