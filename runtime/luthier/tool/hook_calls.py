"""Calls of hooks: converts and checks the arguments that tools pass, and shares equal calls."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import HookError
from luthier.isa import InstructionFlag, RegisterRange
from luthier.isa.registers import UnitSet, is_vector
from luthier.lifting import LiftedRepresentation
from luthier.module import Hook, Parameter
from luthier.module.llvm_types import bits_of, integer_bits, units_of
from luthier.payload import (
    Argument,
    ComputedArgument,
    ConstantArgument,
    EveryWorkGroup,
    LaunchArgument,
    RegisterArgument,
)
from luthier.payload.expressions import Inputs, words_of
from luthier.payload.intrinsics import check_accessible
from luthier.tool.arguments import Immediate, LaunchOperand, SiteValue
from luthier.tool.guards import Guard
from luthier.tool.points import Place


@functools.lru_cache(maxsize=4096)  # tools call it at every point
def reg(name: str) -> RegisterRange:
    """Return a register argument by its assembly name: ``v4``, ``s[2:3]``, ``a0``, ``vcc``, ``exec``, ``scc``, ``m0``.

    Raises:
        HookError: the register does not exist, or hooks cannot read it.
    """
    register = RegisterRange.parse(name)
    if register is None:
        raise HookError(f"there is no register {name!r}")
    check_accessible(register, name)
    return register


PASSES_ON = int(InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL)
"""Flags of instructions after which control continues elsewhere."""
HookArgument = bool | int | float | RegisterRange | LaunchOperand | SiteValue | Immediate


class HookCall(Struct, frozen=True, eq=False):  # equal only to itself: a kernel's calls are compiled once each
    """A hook with its arguments. Insertions of one task share equal calls."""

    hook: Hook
    arguments: tuple[Argument, ...]
    sources: tuple[tuple[int, ...], ...]
    """For each argument its inputs: register units, or per-point numbers; empty for a constant and for an `Immediate`,
    whose words are in `Insertion.numbers`."""
    made_at: int | None = None
    """Index of the instruction that its computed arguments belong to."""
    computed_from: int = 0
    """Bit set of the register units that these are computed from."""
    groups: EveryWorkGroup | None = None
    """The work-groups that the hook runs in; None: all."""
    guard: Guard | None = None
    """Comparisons that decide at each point whether the hook runs; None: it always runs."""


class Insertion(NamedTuple):
    """One hook at one point."""

    at: int
    """Instruction index in the lifted representation."""
    place: Place
    call: HookCall
    numbers: tuple[tuple[int, ...], ...] = ()
    """For each argument the words of its `Immediate`, empty for another kind; () if there is no `Immediate`."""

    @property
    def hook(self) -> Hook:
        """Return the hook that runs."""
        return self.call.hook


class HookCalls:
    """The distinct calls of one task.

    Args:
        kernel: name for errors.
    """

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self._made: dict[tuple[object, ...], HookCall] = {}

    def of(
        self,
        hook: Hook,
        arguments: tuple[HookArgument, ...],
        groups: EveryWorkGroup | None,
        guard: Guard | None = None,
    ) -> tuple[HookCall, tuple[tuple[int, ...], ...]]:
        """Return the call of a hook with its arguments, and `Insertion.numbers`.

        Args:
            groups: the work-groups that the hook runs in; None: all.
            guard: comparisons that decide whether the hook runs.

        Raises:
            HookError: the number or types of the arguments do not match.
        """
        # Equal numbers of different types are different arguments.
        types = tuple(map(type, arguments)) if arguments else ()
        numbers: tuple[tuple[int, ...], ...] = ()
        key: tuple[object, ...] = id(hook), arguments, groups, guard, types  # the call keeps the hook alive
        if Immediate in types and len(arguments) == len(hook.parameters):
            numbers = _numbers(hook, arguments, self._kernel)
            # A call depends on the number of words of its immediates only, not on their values.
            shapes = [len(words) or argument for words, argument in zip(numbers, arguments, strict=True)]
            key = id(hook), *shapes, groups, guard, types
        try:
            call = self._made.get(key)
        except TypeError:  # not hashable, so no valid argument
            call = None
        if call is None:
            call = replace(_call_of(hook, arguments, groups, self._kernel), guard=guard)
            if not any(isinstance(argument, float) for argument in arguments):  # 0.0 and -0.0 are equal
                self._made[key] = call
        return call, numbers


def _numbers(hook: Hook, arguments: Sequence[HookArgument], kernel: str) -> tuple[tuple[int, ...], ...]:
    """Return for each argument the words of its `Immediate`, empty for another kind of argument.

    Raises:
        HookError: a number does not fit its parameter.
    """
    numbers: list[tuple[int, ...]] = []
    for position, (parameter, argument) in enumerate(zip(hook.parameters, arguments, strict=True)):
        if not isinstance(argument, Immediate):
            numbers.append(())
            continue
        try:
            numbers.append(words_of(_bits(parameter, argument.value), 32 * units_of(parameter.llvm)))
        except HookError as problem:
            raise HookError(f"argument {position + 1} of hook {hook}: {problem.message}", kernel=kernel) from None
    return tuple(numbers)


def _call_of(hook: Hook, arguments: Sequence[HookArgument], groups: EveryWorkGroup | None, kernel: str) -> HookCall:
    """Return the call of a hook with its arguments.

    Raises:
        HookError: the number or types of the arguments do not match.
    """
    if len(arguments) != len(hook.parameters):
        raise HookError(f"hook {hook} takes {len(hook.parameters)} arguments, not {len(arguments)}", kernel=kernel)
    converted: list[Argument] = []
    sources: list[tuple[int, ...]] = []
    for position, (parameter, value) in enumerate(zip(hook.parameters, arguments, strict=True)):
        try:
            argument, inputs = _convert(parameter, value)
        except HookError as problem:
            raise HookError(f"argument {position + 1} of hook {hook}: {problem.message}", kernel=kernel) from None
        converted.append(argument)
        sources.append(() if isinstance(value, Immediate) else inputs)
    values = [argument for argument in arguments if isinstance(argument, SiteValue)]
    places = {value.index for value in values if value.index is not None}
    if len(places) > 1:
        raise HookError(f"arguments of hook {hook} belong to several instructions", kernel=kernel)
    registers = 0
    for value in values:
        registers |= value.registers
    return HookCall(hook, tuple(converted), tuple(sources), places.pop() if places else None, registers, groups)


def check_values(lifted: LiftedRepresentation, call: HookCall, index: int, place: Place) -> None:
    """Check that the registers from which arguments are computed hold their values where the hook runs.

    Raises:
        HookError: the arguments belong to another instruction, or this instruction overwrites their registers.
    """
    if call.made_at != index:
        raise HookError(
            f"an argument of hook {call.hook} belongs to another instruction than the hook",
            kernel=lifted.kernel.name,
            offset=int(lifted.code.addresses[index]),
        )
    overwritten = UnitSet(call.computed_from & lifted.effects(index).writes) if place != "before" else UnitSet(0)
    if overwritten:
        raise HookError(
            f"an argument of hook {call.hook} is computed from {overwritten}, which the instruction overwrites; "
            "insert the hook before it",
            kernel=lifted.kernel.name,
            offset=int(lifted.code.addresses[index]),
        )


def _convert(parameter: Parameter, argument: HookArgument) -> tuple[Argument, tuple[int, ...]]:
    """Return an argument for compilation, and its part of `HookCall.sources`."""
    kind = parameter.llvm
    if isinstance(argument, RegisterRange):
        needed = units_of(kind)
        if argument.count != needed:
            raise HookError(f"{kind} takes {needed} registers, not {argument.count}")
        return RegisterArgument(uniform=not is_vector(argument.first)), tuple(argument.units)
    if isinstance(argument, LaunchOperand):
        fits = (
            integer_bits(kind)
            if argument.offset is None
            else (1 if kind == "i1" else bits_of(kind) // 8) == argument.size
        )
        if not fits:
            size = "an integer" if argument.offset is None else f"{argument.size} bytes"
            raise HookError(f"the value is {size} and does not fit {kind}")
        return LaunchArgument(argument.intrinsic, argument.offset), ()
    if isinstance(argument, SiteValue):
        bits = argument.expression.bits
        if bits_of(kind) != bits and not integer_bits(kind) > bits:
            raise HookError(f"{argument.what} has {bits} bits and does not fit {kind}")
        return ComputedArgument(argument.expression), argument.sources
    if isinstance(argument, Immediate):
        inputs = Inputs()
        expression = inputs.immediate(_bits(parameter, argument.value), 32 * units_of(kind), fold=False)
        return ComputedArgument(expression.to(bits_of(kind))), tuple(inputs.sources)
    return ConstantArgument(_constant(parameter, argument)), ()


def _bits(parameter: Parameter, value: int | float) -> int:
    """Return a number as the bits of a parameter's type.

    Raises:
        HookError: the number does not fit.
    """
    kind = parameter.llvm
    if isinstance(value, float) or (kind in _FLOATS and isinstance(value, int)):
        if kind not in _FLOATS:
            raise HookError(f"{value!r} does not fit {kind}")
        try:
            return int.from_bytes(struct.pack(_FLOATS[kind], float(value)), "little")
        except OverflowError:
            raise HookError(f"{value!r} does not fit {kind}") from None
    pointer = kind.startswith("ptr")
    bits = bits_of(kind) if pointer else integer_bits(kind)
    if bits and isinstance(value, int) and not (pointer and isinstance(value, bool)):
        low = 0 if bits == 1 or parameter.signed is False else -(1 << bits - 1)
        high = (1 << bits - 1) - 1 if parameter.signed and bits > 1 else (1 << bits) - 1
        if not low <= value <= high:
            raise HookError(f"{value!r} is outside the range of {kind}: {low} to {high}")
        return int(value)
    raise HookError(f"{value!r} cannot be passed as {kind}")


_FLOATS = {"float": "<f", "double": "<d"}


def _constant(parameter: Parameter, value: int | float) -> str:
    """Return a number as an LLVM constant of a parameter's type."""
    kind, bits = parameter.llvm, _bits(parameter, value)
    if kind in _FLOATS:  # LLVM writes floats, too, as the bits of a double
        (number,) = struct.unpack(_FLOATS[kind], bits.to_bytes(bits_of(kind) // 8, "little"))
        return f"0x{int.from_bytes(struct.pack('<d', number), 'little'):016X}"
    if kind.startswith("ptr"):
        return f"inttoptr (i64 {bits} to {kind})"
    return str(bits) if kind != "i1" else ("true" if bits else "false")
