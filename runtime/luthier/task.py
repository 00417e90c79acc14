"""What a tool does to one kernel: an `InstrumentationTask` collects hooks at points of a lifted kernel."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from luthier.counts import Cell, CounterBudget, CountRequest, Per
from luthier.errors import HookError
from luthier.isa import InstructionFlag, OperandKind, RegisterRange
from luthier.isa.registers import is_vector
from luthier.lifting import BasicBlock, Instruction, LiftedRepresentation
from luthier.module import Hook, LoadedModule, Parameter
from luthier.module.llvm_types import bits_of, integer_bits, units_of
from luthier.payload import Argument, ConstantArgument, LaunchArgument, RegisterArgument
from luthier.payload.intrinsics import check_accessible

Place = Literal["before", "after"]


def reg(name: str) -> RegisterRange:
    """A register argument by its assembly name: ``v4``, ``s[2:3]``, ``a0``, ``vcc``, ``exec``, ``scc``, ``m0``.

    Raises:
        HookError: no such register, or one that hooks do not read.
    """
    register = RegisterRange.parse(name)
    if register is None:
        raise HookError(f"there is no register {name!r}")
    check_accessible(register, name)
    return register


@dataclass(frozen=True)
class LaunchOperand:
    """A hook argument whose value is what the kernel got at launch. Make one by a method of `InstrumentationTask`."""

    intrinsic: str
    offset: int | None = None
    """Of a kernel argument, in bytes."""
    size: int = 4
    """Bytes."""


HookArgument = bool | int | float | RegisterRange | LaunchOperand


@dataclass(frozen=True, eq=False)  # equal only to itself: a kernel's calls are compiled once each
class HookCall:
    """A hook with its arguments. Insertions of one task that want the same share one."""

    hook: Hook
    arguments: tuple[Argument, ...]
    registers: tuple[RegisterRange | None, ...]
    """For each argument the registers it is read from, None for a constant."""


class Insertion(NamedTuple):
    """One hook at one point."""

    at: int
    """Instruction index in the lifted representation."""
    place: Place
    call: HookCall

    @property
    def hook(self) -> Hook:
        """What runs."""
        return self.call.hook

    @property
    def point(self) -> int:
        """Index of the instruction it runs before."""
        return self.at + (self.place == "after")


class InstrumentationTask:
    """Collects what is to be spliced into one kernel. Several hooks at one point run in the order they were inserted.

    Args:
        lifted: the kernel, as `luthier.lift` gives it.

    Attributes:
        insertions: the hooks, in the order they were inserted.
        counts: what is to be counted.
        counter_budget: registers that counters may use.
        waves_given: whether who reads what was counted into no variable knows how many waves were launched: then they
            need not be counted, and code without branches needs no counter at all.
        hoist: whether hooks that do nothing but count become counts. Variables get the same values, but not before
            waves end.
    """

    def __init__(self, lifted: LiftedRepresentation) -> None:
        self.lifted = lifted
        self.insertions: list[Insertion] = []
        self.counts: list[CountRequest] = []
        self.counter_budget = CounterBudget()
        self.waves_given = False
        self.hoist = False
        self._calls: dict[tuple[object, ...], HookCall] = {}

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Every reachable instruction of the kernel and of the functions it calls, in address order; without words that
        are no known instruction."""
        opcodes = self.lifted.columns.opcode
        for index, block in enumerate(self.lifted.block_of):
            if block >= 0 and opcodes[index] >= 0:
                yield Instruction(self.lifted, index)

    @property
    def modules(self) -> list[LoadedModule]:
        """The modules of all hooks and of all variables that are counted into."""
        counted = [request.into.module for request in self.counts if request.into is not None]
        found = {id(module): module for module in (*(call.hook.module for _, _, call in self.insertions), *counted)}
        return list(found.values())

    def operand(self, instruction: Instruction, name: str) -> RegisterRange:
        """The registers an instruction names as one of its operands, as a register argument.

        Args:
            instruction: one of `instructions`.
            name: LLVM's name of the operand: ``vdst``, ``src0``, ``vaddr``, ``vdata``, ``saddr``, …

        Raises:
            HookError: it has no such operand, or the operand is no register.
        """
        found = instruction.operand(name)
        if found is None:
            names = ", ".join(instruction.opcode.operand_index)
            raise HookError(f"{instruction.text!r} has no operand {name!r}; it has {names}")
        kind, number = found
        register = self.lifted.isa.register(number) if kind == OperandKind.REGISTER else None
        if register is None or register.first_unit < 0:
            raise HookError(f"operand {name} of {instruction.text!r} is no register that holds a value")
        return RegisterRange(register.first_unit, register.unit_count)

    def workgroup_id(self, axis: int) -> LaunchOperand:
        """The work-group's id in dimension 0, 1 or 2 (``blockIdx``), as an argument for an integer parameter.

        Raises:
            HookError: there is no such dimension.
        """
        return LaunchOperand(f"llvm.amdgcn.workgroup.id.{self._axis(axis)}")

    def workitem_id(self, axis: int) -> LaunchOperand:
        """The work-item's id in its work-group in dimension 0, 1 or 2 (``threadIdx``), as `workgroup_id`."""
        return LaunchOperand(f"llvm.amdgcn.workitem.id.{self._axis(axis)}")

    def kernel_argument(self, which: str | int) -> LaunchOperand:
        """What the kernel was given for one of its own arguments, as an argument for a parameter of its size.

        Args:
            which: its name in the kernel's metadata, or its position.

        Raises:
            HookError: there is no such argument, or several have the name.
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
        return LaunchOperand("llvm.amdgcn.kernarg.segment.ptr", found[0].offset, found[0].size)

    def _axis(self, axis: int) -> str:
        if axis not in (0, 1, 2):
            raise HookError(f"there is no dimension {axis!r}", kernel=self.lifted.kernel.name)
        return "xyz"[axis]

    def insert_hook_before(self, instruction: Instruction | int, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` whenever control is about to execute `instruction`, however it got there.

        Args:
            instruction: an instruction of `instructions`, or its index.
            hook: a hook of a `ToolModule`.
            arguments: one a parameter: a Python number for a constant, `reg` for a register's value.

        Raises:
            HookError: wrong number or type of arguments, or no such instruction.
        """
        self._insert("before", instruction, hook, arguments)

    def insert_hook_after(self, instruction: Instruction | int, hook: Hook, *arguments: HookArgument) -> None:
        """Run `hook` when `instruction` has been executed and control went on to the next.

        Raises:
            HookError: also for branches and other terminators, after which control is elsewhere.
        """
        self._insert("after", instruction, hook, arguments)

    def count(
        self,
        sites: Iterable[Instruction | BasicBlock | int] | Instruction | BasicBlock | int,
        weight: int = 1,
        per: Per = "wave",
        into: Cell | None = None,
    ) -> CountRequest:
        """Count how often instructions run, without hooks: in registers, with few additions and one atomic operation
        when a wave ends.

        Args:
            sites: instructions, or their indices, or blocks, which count once when they are entered.
            weight: what each of them adds.
            per: "wave" adds the weight for each wave that runs it, "lane" for each lane that is active then.
            into: the number in device memory that it is added to, when each wave ends; None: the sum is found out when
                counters are read (`luthier.counts.KernelCounts.total`), and with it how often everything in the
                functions concerned runs.

        Raises:
            HookError: no such instruction or cell, or a weight that is no 32-bit number.
        """
        lifted = self.lifted
        every = [sites] if isinstance(sites, Instruction | BasicBlock | int) else sites
        indices = []
        for site in every:
            index = site if isinstance(site, int) else site.first if isinstance(site, BasicBlock) else site.index
            if not 0 <= index < len(lifted.block_of) or lifted.block_of[index] < 0:
                raise HookError(f"there is no reachable instruction {index}", kernel=lifted.kernel.name)
            indices.append(index)
        if not -(1 << 31) <= weight < 1 << 31:
            raise HookError(f"a weight of {weight} does not fit 32 bits", kernel=lifted.kernel.name)
        if per not in ("wave", "lane"):
            raise HookError(f"counts are per wave or per lane, not per {per}", kernel=lifted.kernel.name)
        if into is not None:
            into.check()
        request = CountRequest(tuple((index, weight) for index in indices), per, into)
        self.counts.append(request)
        return request

    def _insert(
        self, place: Place, instruction: Instruction | int, hook: Hook, arguments: tuple[HookArgument, ...]
    ) -> None:
        index = instruction if isinstance(instruction, int) else instruction.index
        lifted = self.lifted
        if not 0 <= index < len(lifted.block_of) or lifted.block_of[index] < 0:
            raise HookError(f"there is no reachable instruction {index}", kernel=lifted.kernel.name)
        key = hook, arguments, *map(type, arguments)  # equal numbers of different types are different arguments
        try:
            call = self._calls.get(key)
        except TypeError:  # unhashable: nothing that can be passed
            call = None
        if call is None:
            call = self._call(hook, arguments)
            if not any(isinstance(argument, float) for argument in arguments):  # 0.0 and -0.0 are equal
                self._calls[key] = call
        if place == "after" and lifted.code.flags[index] & _PASSES_ON:
            raise HookError(
                "no hook can run after an instruction that passes control on",
                kernel=lifted.kernel.name,
                offset=int(lifted.code.addresses[index]),
            )
        self.insertions.append(Insertion(index, place, call))

    def _call(self, hook: Hook, arguments: tuple[HookArgument, ...]) -> HookCall:
        kernel = self.lifted.kernel.name
        if len(arguments) != len(hook.parameters):
            raise HookError(
                f"hook {hook} takes {len(hook.parameters)} arguments, {len(arguments)} given", kernel=kernel
            )
        converted, registers = [], []
        for position, (parameter, argument) in enumerate(zip(hook.parameters, arguments, strict=True)):
            try:
                converted.append(_convert(parameter, argument))
            except HookError as problem:
                raise HookError(f"argument {position + 1} of hook {hook}: {problem.message}", kernel=kernel) from None
            registers.append(argument if isinstance(argument, RegisterRange) else None)
        return HookCall(hook, tuple(converted), tuple(registers))


_PASSES_ON = int(InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL)


def _convert(parameter: Parameter, argument: HookArgument) -> Argument:
    kind = parameter.llvm
    if isinstance(argument, RegisterRange):
        needed = units_of(kind)
        if argument.count != needed:
            raise HookError(f"{kind} takes {needed} registers, {argument.count} given")
        return RegisterArgument(uniform=not is_vector(argument.first))
    if isinstance(argument, LaunchOperand):
        fits = (
            integer_bits(kind)
            if argument.offset is None
            else (1 if kind == "i1" else bits_of(kind) // 8) == argument.size
        )
        if not fits:
            size = "an integer" if argument.offset is None else f"{argument.size} bytes"
            raise HookError(f"it is {size} and does not fit {kind}")
        return LaunchArgument(argument.intrinsic, argument.offset)
    if isinstance(argument, float) or (kind in ("float", "double") and isinstance(argument, int)):
        if kind not in ("float", "double"):
            raise HookError(f"{argument!r} does not fit {kind}")
        value = float(argument)
        if kind == "float":
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        return ConstantArgument(f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}")
    bits = integer_bits(kind)
    if bits and isinstance(argument, int):
        low = 0 if bits == 1 or parameter.signed is False else -(1 << bits - 1)
        high = (1 << bits - 1) - 1 if parameter.signed and bits > 1 else (1 << bits) - 1
        if not low <= argument <= high:
            raise HookError(f"{argument!r} is outside {low} to {high} of {kind}")
        return ConstantArgument(str(int(argument)) if bits > 1 else ("true" if argument else "false"))
    if kind.startswith("ptr") and isinstance(argument, int) and not isinstance(argument, bool):
        return ConstantArgument(f"inttoptr (i64 {argument} to {kind})")
    raise HookError(f"{argument!r} cannot be passed as {kind}")
