"""Declaration of operations.

README.md is the guide.

An operation is one function from values to values, under all the mnemonics that mean it (LLVM's spelling without the
encoding suffix ``_e32 _e64 _dpp _sdwa``). A family module makes one `OperationTable` called ``operations``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from msgspec import Struct, field

from luthier.emulator.ir.types import ScalarType

Function = TypeVar("Function", bound=Callable[..., Any])


class Unsupported(Exception):
    """The instruction has no operation, or an operand that the emulator does not model."""


class Form(enum.Enum):
    """Kind of code that is generated around a semantic function."""

    LANE = "lane"
    """Pure, per lane; EXEC, modifiers, DPP and SDWA are applied around it."""
    PACKED = "packed"
    """Pure, per 16-bit half of each lane; op_sel, op_sel_hi and the two negations are applied around it."""
    SCALAR = "scalar"
    """Pure, on SGPRs and SCC."""
    WAVE = "wave"
    """Anything else: the function reads and writes its operands itself and sees EXEC."""
    CONTROL = "control"
    """Decides what runs next; returns nothing, ends its own code."""


class OperandSpec(Struct, frozen=True):
    """One operand of a signature: the MC operand's name and the type its bits are read as."""

    name: str
    type: ScalarType
    """For an immediate, u32."""
    is_result: bool = False
    is_immediate: bool = False
    """A number of the instruction, known when the kernel is decoded and read from the record."""


class DeclaredOperation(Struct, frozen=True):
    """One declared operation."""

    names: tuple[str, ...]
    form: Form
    sources: tuple[OperandSpec, ...]
    results: tuple[OperandSpec, ...]
    function: Callable[..., Any]
    exact: bool = True
    """False where hardware is only bounded: then correctly rounded."""
    static: tuple[str, ...] = ()
    """MC operands whose value is compiled in, given to the function in ``b.modifiers``."""
    generations: bool = False
    """The meaning depends on ``b.major``."""
    processors: bool = False
    """The meaning depends on ``b.processor``; code is made for each one."""
    flush: bool = True
    """Float operands and results obey the denormal mode."""
    since: tuple[int, ...] = ()
    """Generations with which it begins under these names, by `Generation.emulated_major`; their descendants have it,
    too. Empty: all have it. One that begins later under the same name takes its place."""
    until: tuple[int, ...] = ()
    """Descendants of these that do not have it any more."""
    denormals_by_mode: bool = False
    """Operands are given as integers, and are floats of which MODE says whether denormals are kept."""
    counted: bool = True
    """False for the emulator's own stand-ins for instructions."""

    @property
    def uses_float(self) -> bool:
        """Return whether code depends on the MODE register."""
        return self.denormals_by_mode or any(spec.type.is_float for spec in (*self.sources, *self.results))


def _operand_names(text: str, defaults: tuple[str, ...], count: int) -> list[str]:
    names = text.split() if text else list(defaults[:count])
    if len(names) != count:
        raise ValueError(f"{count} operands named by {text!r}")
    return names


def parse_signature(signature: str, form: Form) -> tuple[tuple[OperandSpec, ...], tuple[OperandSpec, ...]]:
    """Return sources and results of ``"[name:]type … -> [name:]type …"``; ``#name`` is an immediate.

    Unnamed sources are src0, src1, src2 (an unnamed mask source after the first two is VCC where the instruction has no
    such operand); unnamed results are vdst and sdst, of scalar operations sdst. ``scc`` is the condition code.
    """
    left, arrow, right = signature.partition("->")
    if not arrow:
        raise ValueError(f"signature without ->: {signature!r}")
    results_default = ["sdst", "sdst2"] if form is Form.SCALAR else ["vdst", "sdst"]
    sources: list[OperandSpec] = []
    position = 0
    for word in left.split():
        if word.startswith("#"):
            sources.append(OperandSpec(word[1:], ScalarType.parse("u32"), is_immediate=True))
            continue
        name, colon, type_name = word.rpartition(":")
        if not colon:
            name = "scc" if type_name == "scc" else f"src{position}"
        if type_name != "scc":
            position += 1
        sources.append(OperandSpec(name, ScalarType.parse(type_name)))
    results: list[OperandSpec] = []
    for word in right.split():
        name, colon, type_name = word.rpartition(":")
        if not colon:
            name = "scc" if type_name == "scc" else results_default.pop(0)
            if type_name == "mask" and not results:
                name = "sdst"
        results.append(OperandSpec(name, ScalarType.parse(type_name), is_result=True))
    return tuple(sources), tuple(results)


class OperationTable(Struct):
    """The operations of one family module."""

    rows: list[DeclaredOperation] = field(default_factory=list)

    def __iter__(self) -> Iterator[DeclaredOperation]:
        return iter(self.rows)

    def _declare(self, form: Form, names: str, signature: str, **settings: Any) -> Callable[[Function], Function]:
        sources, results = parse_signature(signature, form)

        def add(function: Function) -> Function:
            self.rows.append(DeclaredOperation(tuple(names.split()), form, sources, results, function, **settings))
            return function

        return add

    def lane(self, names: str, signature: str, **settings: Any) -> Callable[[Function], Function]:
        """Declare a vector operation: ``@operations.lane("v_add_u32 v_add_nc_u32", "u32 u32 -> u32")``."""
        return self._declare(Form.LANE, names, signature, **settings)

    def packed(self, names: str, signature: str, **settings: Any) -> Callable[[Function], Function]:
        """Declare a VOP3P operation on both 16-bit halves.

        The function computes one half: ``"f16 f16 -> f16"``.
        """
        return self._declare(Form.PACKED, names, signature, **settings)

    def scalar(self, names: str, signature: str, **settings: Any) -> Callable[[Function], Function]:
        """Declare a scalar operation: ``@operations.scalar("s_add_u32", "u32 u32 -> u32 scc")``."""
        return self._declare(Form.SCALAR, names, signature, **settings)

    def compare(self, names: str, signature: str, **settings: Any) -> Callable[[Function], Function]:
        """Declare a vector comparison ``v_cmp_X`` and its ``v_cmpx_X``.

        The latter also, or on later targets only, writes EXEC.
        """
        spelled = " ".join(f"{name} {name.replace('v_cmp_', 'v_cmpx_')}" for name in names.split())
        return self._declare(Form.LANE, spelled, f"{signature} -> sdst:mask", **settings)

    def wave(self, names: str, signature: str, **settings: Any) -> Callable[[Function], Function]:
        """Declare any other operation.

        The function gets the `WaveBuilder` and one `Slot` per operand, results first.
        """
        return self._declare(Form.WAVE, names, signature, **settings)

    def control(self, names: str, signature: str = "->", **settings: Any) -> Callable[[Function], Function]:
        """Declare an operation that decides what runs next."""
        return self._declare(Form.CONTROL, names, signature, **settings)
