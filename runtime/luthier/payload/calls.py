"""Calls to intrinsics in a hook's IR, and their replacement.

The compiler plugin leaves a call to ``NAMESPACE::NAME[.<return type>].<argument types>`` in a hook's bitcode. After the
hook is inlined into its payload, each such call is replaced by LLVM IR from the intrinsic's record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import ConstantError, HookError, LuthierError
from luthier.isa.targets import Target
from luthier.payload.ir import IrOperand, names_in, read_instruction

Lower = Callable[["IntrinsicCall", "Lowering"], list[str]]
"""Returns the lines of IR text, not indented, that replace a call. They define the call's `result`, if it has one, and
use `Lowering.fresh` for other names."""

Definition = str | bytes | Callable[[Target, int], str | bytes]
"""LLVM IR as text or bitcode, or a function of target and wave size that returns it. It defines functions with the
intrinsic's full names, e.g. ``@"my::lane_swap.i32.i32.i32"``."""


class Intrinsic(Struct, frozen=True):
    """The name and meaning of a function declared with `LUTHIER_INTRINSIC_ANNOTATE` in a device header.

    Raises:
        HookError: not exactly one of `lower` and `definition` is given.
    """

    name: str
    """Name with its namespace, e.g. ``luthier::readReg``."""
    signature: str
    """Signature for tool authors, e.g. ``readReg<T>(reg)``."""
    doc: str
    """One-line description."""
    lower: Lower | None = None
    """For intrinsics that access registers, or whose code must not be moved."""
    definition: Definition | None = None
    """For intrinsics that only compute a value: functions that are linked and inlined first."""
    package: str = "luthier"
    """The distribution that provides it, set when it is loaded from an entry point."""

    def __post_init__(self) -> None:
        if (self.lower is None) == (self.definition is None):
            raise HookError(f"intrinsic {self.name} of {self.package} needs exactly one of `lower` and `definition`")


class IntrinsicCall(Struct, frozen=True):
    """A call to an intrinsic, read from LLVM's textual IR."""

    base: str
    """Name without types, e.g. ``luthier::readReg``."""
    return_type: str
    result: str | None
    """The value that it defines, e.g. ``%7``; None if it is void or unused."""
    arguments: tuple[tuple[str, str], ...]
    """(type, value) of each argument."""

    def constant(self, index: int) -> int:
        """Return an integer argument that must be a compile-time constant."""
        kind, value = self.arguments[index]
        number = IrOperand(kind, value).number
        if number is None:
            raise ConstantError(
                f"argument {index + 1} of {self.base} must be a compile-time constant, not {kind} {value}"
            )
        return number


@dataclass
class Lowering:
    """State of lowering a payload's intrinsics: collects everything besides the replacement text."""

    target: Target
    wave_size: int
    read: set[int] = field(default_factory=set)
    """Register units of the application that the payload reads."""
    written: set[int] = field(default_factory=set)
    """Register units of the application that the payload writes."""
    runs_without_lanes: bool = False
    """Whether the payload has an effect even if EXEC is 0."""
    writes_inactive_lanes: bool = False
    """Whether the payload's vector temporaries are written in inactive lanes."""
    implicit_offset: str = "implicit_offset"
    """Name of the state with the offset of implicit arguments, in the layout for which the hook was compiled."""
    states: dict[tuple[str, int], str] = field(default_factory=dict)
    """Launch state that the payload reads: (name, part) -> its IR value."""
    declarations: set[str] = field(default_factory=set)
    """LLVM's ``declare`` lines of called functions."""
    _temporaries: int = 0

    def fresh(self) -> str:
        """Return a new IR value name."""
        self._temporaries += 1
        return f"%luthier.{self._temporaries}"

    def state(self, name: str, part: int = 0) -> str:
        """Return the IR value of a 32-bit part of a launch state (`luthier.payload.launch_state.STATES`)."""
        return self.states.setdefault((name, part), f"%luthier.{name}.{part}")

    def call(self, result: str, kind: str, function: str, *arguments: tuple[str, str]) -> str:
        """Return the IR of a call to an LLVM intrinsic, and declare it.

        Args:
            result: the value that it defines.
            kind: type of that value.
            function: name, e.g. ``llvm.amdgcn.readlane.i32``.
            arguments: (type, value) of each.
        """
        self.declarations.add(f"declare {kind} @{function}({', '.join(type for type, _ in arguments)})")
        return f"{result} = call {kind} @{function}({', '.join(f'{type} {value}' for type, value in arguments)})"


def inline_assembly(result: str, kind: str, lines: list[str], constraints: str, operands: str) -> str:
    """Return the IR of opaque assembly with side effects."""
    source = "\\0A".join(lines)
    return f'{result} = call {kind} asm sideeffect "{source}", "{constraints}"({operands})'


def parse_call(line: str, known: Container[str] = ()) -> IntrinsicCall | None:
    """Return the intrinsic call in one line of IR, or None.

    Args:
        known: names of intrinsics without a C++ namespace.
    """
    instruction = read_instruction(line) if " call " in line and "@" in line else None
    if instruction is None or not ("::" in instruction.callee or instruction.callee in known):
        return None
    base = instruction.callee if instruction.callee in known else instruction.callee.split(".")[0]
    arguments = tuple((value.type, value.text) for value in instruction.operands)
    if not all(kind and value for kind, value in arguments):
        raise HookError(f"cannot read the arguments of {instruction.callee} in {line.strip()!r}")
    return IntrinsicCall(base, instruction.type, instruction.result or None, arguments)


def intrinsics_called(names: Iterable[str]) -> set[str]:
    """Return the base names of intrinsics among the names of functions: those in a C++ namespace."""
    return {name.partition(".")[0] for name in names if "::" in name}


def lower_calls(function: str, lowering: Lowering, intrinsics: Mapping[str, Intrinsic]) -> str:
    """Replace every intrinsic call in the text of one function.

    Args:
        intrinsics: by base name.

    Raises:
        HookError: an intrinsic is undefined, or a call has unsupported arguments.
    """
    lines = []
    uses = Counter(names_in(function))
    for line in function.splitlines():
        call = parse_call(line, intrinsics)
        if call is None:
            lines.append(line)
            continue
        if call.result is not None and uses[call.result] == 1:
            call = replace(call, result=None)
        intrinsic = intrinsics.get(call.base)
        if intrinsic is None:
            names = ", ".join(name for name in intrinsics if "::" in name)
            raise HookError(f"unknown intrinsic {call.base}; known: {names}")
        if intrinsic.lower is None:
            kinds = ", ".join(kind for kind, _ in call.arguments)
            raise HookError(
                f"intrinsic {call.base} of {intrinsic.package} has no definition for ({kinds}) -> {call.return_type}"
            )
        try:
            lines += [f"  {replacement}" for replacement in intrinsic.lower(call, lowering)]
        except LuthierError:
            raise
        except Exception as problem:  # from another package's code
            raise HookError(f"intrinsic {call.base} of {intrinsic.package} cannot be lowered: {problem!r}") from problem
    return "\n".join(lines)
