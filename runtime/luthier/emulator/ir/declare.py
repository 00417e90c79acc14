"""Declaration of operations.

README.md is the guide.

An operation is a function from values to values, with all its mnemonics (LLVM's spelling without the encoding suffix
``_e32 _e64 _dpp _sdwa``). Each family module has one `OperationTable` called ``operations``.
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
    """Kind of code that surrounds a semantic function."""

    LANE = "lane"
    """Pure, per lane; the surrounding code applies EXEC, modifiers, DPP and SDWA."""
    PACKED = "packed"
    """Pure, per 16-bit half of each lane; the surrounding code applies op_sel, op_sel_hi and both negations."""
    SCALAR = "scalar"
    """Pure, on SGPRs and SCC."""
    WAVE = "wave"
    """Anything else: the function itself reads EXEC and its operands, and writes its results."""
    CONTROL = "control"
    """Determines the next instruction; returns nothing, and ends its own code."""


class OperandSpec(Struct, frozen=True):
    """Operand of a signature: the MC operand's name and the type of its bits."""

    name: str
    type: ScalarType
    """u32 for an immediate."""
    is_result: bool = False
    is_immediate: bool = False
    """A number in the instruction, known at decoding and read from the record."""


class DeclaredOperation(Struct, frozen=True):
    """Declared operation."""

    names: tuple[str, ...]
    form: Form
    sources: tuple[OperandSpec, ...]
    results: tuple[OperandSpec, ...]
    function: Callable[..., Any]
    exact: bool = True
    """False if documents only bound the error of hardware; the result is then correctly rounded."""
    static: tuple[str, ...] = ()
    """MC operands whose values are compiled in; the function finds them in ``b.modifiers``."""
    generations: bool = False
    """The meaning depends on ``b.major``."""
    processors: bool = False
    """The meaning depends on ``b.processor``; each processor has its own code."""
    flush: bool = True
    """Float operands and results obey the denormal mode."""
    since: tuple[int, ...] = ()
    """Generations, by `Generation.emulated_major`, that introduce the operation; their descendants inherit it. Empty:
    all have it. A later operation with the same name replaces it."""
    until: tuple[int, ...] = ()
    """Descendants of these generations that no longer have it."""
    denormals_by_mode: bool = False
    """Operands are declared as integers, but are floats whose denormals MODE controls."""
    counted: bool = True
    """False for operations that are no instructions of the ISA."""

    @property
    def uses_float(self) -> bool:
        """Return whether code depends on the MODE register."""
        return self.denormals_by_mode or any(spec.type.is_float for spec in (*self.sources, *self.results))


def parse_signature(signature: str, form: Form) -> tuple[tuple[OperandSpec, ...], tuple[OperandSpec, ...]]:
    """Return sources and results of ``"[name:]type … -> [name:]type …"``; ``#name`` is an immediate.

    Unnamed sources are src0, src1, src2 (an unnamed mask source after the first two is VCC if the instruction has no
    such operand). Unnamed results are vdst and sdst; in scalar operations sdst. ``scc`` is the condition code.
    """
    left, arrow, right = signature.partition("->")
    if not arrow:
        raise ValueError(f"signature {signature!r} has no '->'")
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
    """Operations of one family module."""

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

        The latter also writes EXEC; on later targets it writes only EXEC.
        """
        spelled = " ".join(f"{name} {name.replace('v_cmp_', 'v_cmpx_')}" for name in names.split())
        return self._declare(Form.LANE, spelled, f"{signature} -> sdst:mask", **settings)

    def wave(self, names: str, signature: str, **settings: Any) -> Callable[[Function], Function]:
        """Declare any other operation.

        The function receives the `WaveBuilder` and one `OperandSlot` per operand, results first.
        """
        return self._declare(Form.WAVE, names, signature, **settings)

    def control(self, names: str, signature: str = "->", **settings: Any) -> Callable[[Function], Function]:
        """Declare an operation that determines the next instruction."""
        return self._declare(Form.CONTROL, names, signature, **settings)
