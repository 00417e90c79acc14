"""Calls to intrinsics in a hook's IR, and how they are replaced.

The compiler plugin leaves a call to ``NAMESPACE::NAME[.<return type>].<argument types>`` in a hook's bitcode. Once
the hook is inlined into its payload, each such call is replaced by LLVM IR that the intrinsic's record gives.
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
"""Gives the lines of IR, textual and not indented, that replace a call. They define the call's `result`, if it has one,
and take other names from `Lowering.fresh`."""

Definition = str | bytes | Callable[[Target, int], str | bytes]
"""LLVM IR, as text or bitcode, or a function of target and wave size that returns it. It defines functions of the
intrinsic's full names, e.g. ``@"my::lane_swap.i32.i32.i32"``."""


class Intrinsic(Struct, frozen=True):
    """A function declared `LUTHIER_INTRINSIC_ANNOTATE` in a device header: what it is called, and what it means.

    Raises:
        HookError: not exactly one of `lower` and `definition` is given.
    """

    name: str
    """With its namespace, e.g. ``luthier::readReg``."""
    signature: str
    """Signature for tool authors, e.g. ``readReg<T>(reg)``."""
    doc: str
    """One-line description."""
    lower: Lower | None = None
    """For what is more than a value: access to registers, code that must not be moved."""
    definition: Definition | None = None
    """For what is a value: functions that are linked and inlined before anything else is done."""
    package: str = "luthier"
    """The distribution it comes from; set when it is found by its entry point."""

    def __post_init__(self) -> None:
        if (self.lower is None) == (self.definition is None):
            raise HookError(f"intrinsic {self.name} of {self.package} needs either `lower` or `definition`")


class IntrinsicCall(Struct, frozen=True):
    """A call to an intrinsic, read from LLVM's textual IR."""

    base: str
    """Name without types, e.g. ``luthier::readReg``."""
    return_type: str
    result: str | None
    """The value it defines, e.g. ``%7``; None when it is void or nothing uses it."""
    arguments: tuple[tuple[str, str], ...]
    """(type, value) of each argument."""

    def constant(self, index: int) -> int:
        """Return an integer argument that must be known when the hook is compiled."""
        kind, value = self.arguments[index]
        number = IrOperand(kind, value).number
        if number is None:
            raise ConstantError(
                f"argument {index + 1} of {self.base} must be a compile-time constant, not {kind} {value}"
            )
        return number


@dataclass
class Lowering:
    """Results of lowering a payload's intrinsics, besides the replacing text."""

    target: Target
    wave_size: int
    read: set[int] = field(default_factory=set)
    """Register units whose value at the point the payload reads."""
    written: set[int] = field(default_factory=set)
    """Register units the payload gives a new value."""
    runs_without_lanes: bool = False
    """The payload has an effect even where EXEC is 0."""
    writes_inactive_lanes: bool = False
    """The payload's vector temporaries are written in lanes that are not active."""
    implicit_offset: str = "implicit_offset"
    """Name of the state that says where implicit arguments are, laid out as the hook was compiled for."""
    states: dict[tuple[str, int], str] = field(default_factory=dict)
    """Launch state that the payload reads: (name, part) -> the IR value that holds it everywhere."""
    declarations: set[str] = field(default_factory=set)
    """LLVM's ``declare`` lines of what the text calls."""
    _temporaries: int = 0

    def fresh(self) -> str:
        """Return a new IR value name."""
        self._temporaries += 1
        return f"%luthier.{self._temporaries}"

    def state(self, name: str, part: int = 0) -> str:
        """Return the IR value of a 32-bit part of what the kernel gets at launch.

        See `luthier.payload.launch_state.STATES`.
        """
        return self.states.setdefault((name, part), f"%luthier.{name}.{part}")

    def call(self, result: str, kind: str, function: str, *arguments: tuple[str, str]) -> str:
        """Return the IR of a call to an LLVM intrinsic, and declare it.

        Args:
            result: the value that it defines.
            kind: type of that value.
            function: name, e.g. ``llvm.amdgcn.readlane.i32``.
            arguments: (type, value) of each.
        """
        self.declarations.add(f"declare {kind} @{function}({', '.join(one for one, _ in arguments)})")
        return f"{result} = call {kind} @{function}({', '.join(f'{one} {value}' for one, value in arguments)})"


def inline_assembly(result: str, kind: str, lines: list[str], constraints: str, operands: str) -> str:
    """Return an opaque, side-effecting piece of assembly as IR."""
    source = "\\0A".join(lines)
    return f'{result} = call {kind} asm sideeffect "{source}", "{constraints}"({operands})'


def parse_call(line: str, known: Container[str] = ()) -> IntrinsicCall | None:
    """Return the intrinsic call in one line of IR, or None.

    Args:
        known: names that are intrinsics besides those in a C++ namespace.
    """
    one = read_instruction(line) if " call " in line and "@" in line else None
    if one is None or not ("::" in one.callee or one.callee in known):
        return None
    base = one.callee if one.callee in known else one.callee.split(".")[0]
    arguments = tuple((value.type, value.text) for value in one.operands)
    if not all(kind and value for kind, value in arguments):
        raise HookError(f"cannot read the arguments of {one.callee} in {line.strip()!r}")
    return IntrinsicCall(base, one.type, one.result or None, arguments)


def intrinsics_called(names: Iterable[str]) -> set[str]:
    """Return the base names of intrinsics among the names of functions: those in a C++ namespace."""
    return {name.partition(".")[0] for name in names if "::" in name}


def lower_calls(function: str, lowering: Lowering, intrinsics: Mapping[str, Intrinsic]) -> str:
    """Replace every intrinsic call in the text of one function.

    Args:
        intrinsics: by base name.

    Raises:
        HookError: an intrinsic nobody defines, or one called in a way it does not support.
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
        except Exception as problem:  # whatever a stranger's code raises
            raise HookError(f"intrinsic {call.base} of {intrinsic.package} cannot be lowered: {problem!r}") from problem
    return "\n".join(lines)
