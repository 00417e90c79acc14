"""Shapes of instructions: the numbers that they read and return, and their places in registers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from luthier import Instruction
from luthier.errors import HookError
from luthier.isa import Isa, OperandKind

TYPES = ("", "f16", "bf16", "f32", "f64")
"""Types of numbers, as in device.hip."""
MOST_OPERANDS = 3
"""Number of operands of a hook."""
_ARITHMETIC = (
    "add|sub|subrev|mul|fma|fmac|fmaak|fmamk|mad|mac|madak|madmk|max|min|max3|min3|med3|maxmin|minmax|maximum|minimum"
    "|max_num|min_num|max3_num|min3_num|med3_num|maxmin_num|minmax_num|maximum3|minimum3|maximumminimum|minimummaximum"
    "|rcp|rsq|sqrt|exp|log|sin|cos|tanh|fract|floor|ceil|trunc|rndne|div_fixup|div_fmas|ldexp|frexp_mant|trig_preop"
    "|mullit|cubeid|cubema|cubesc|cubetc"
)
_ENCODING = re.compile(r"(?:_e32|_e64|_dpp|_dpp8|_e64_dpp|_sdwa)$")
_ONE_TYPE = re.compile(rf"(?:v|s|v_s)_(pk_)?({_ARITHMETIC})(?:_legacy|_dx9_zero|_iflag)?_(f16|f32|f64)$")
_CONVERSION = re.compile(r"[vs]_cvt_(f16|f32|f64)_(f16|bf16|f32|f64|[iu]16)$")
_PAIR = re.compile(r"v_cvt_pk_?(?:rtz_)?(f16|bf16)_f32$")
_MIXED = re.compile(r"v_(?:fma|mad)_mix(?:(lo|hi)_f16|_f32)$")
_DOT = re.compile(r"v_dot2(?:c|acc)?_(f32|f16|bf16)_(f16|bf16)$")
_PASSES_ON = re.compile(
    r"(?:v|s)_(?:pk_)?(?:(?:min|max|med3|min3|max3|minmax|maxmin|minimum|maximum|minimum3|maximum3|minimummaximum"
    r"|maximumminimum)(?:_num)?|floor|ceil|trunc|rndne|frexp_mant)_f(?:16|32|64)$"
    r"|[vs]_cvt_(?:f32_(?:f16|bf16)|f64_f32)$"
)
"""Names of instructions whose results are NaN only for NaN, and infinite only for infinities."""
_FINITE = re.compile(r"[vs]_cvt_(?:f32_[iu]32|f64_[iu]32|f32_ubyte\d|off_f32_i4)$")
"""Names of conversions whose results are never exceptional."""
_OTHER = re.compile(r"[vs]_cmpx?_|v_div_scale|v_readfirstlane|[vs]_(?:cvt|frexp_exp)\w*_[iu]\d+_f")
"""Names of instructions with results of other kinds; of `v_div_scale` a NaN has a meaning."""
_READ = {"div_fixup": (1, 2), "ldexp": (0,), "trig_preop": (0,)}
"""Operands that count where it is not all: the quotient's estimate may be NaN by design, others are integers."""
_DWORD, _WORD_1 = 6, 5
"""Selections of SDWA: all of a register, its upper half."""
_DUAL = re.compile(r"V_DUAL_(\w+?)(?:_e32)?(?:_X_)(\w+?)(?:_e32)?(?:_gfx\d+)?$")


@dataclass(frozen=True)
class Part:
    """A number in an operand."""

    operand: int
    """Index of the operand; 0 for results."""
    type: str
    high: bool = False
    """It is in the upper half of the hook's argument."""

    @property
    def code(self) -> int:
        """Return it as device.hip takes it: six bits."""
        return self.operand | TYPES.index(self.type) << 2 | self.high << 5


@dataclass(frozen=True)
class Element:
    """A number that an instruction returns, and its operands."""

    result: Part
    operands: tuple[Part, ...]

    @property
    def code(self) -> int:
        """Return it as device.hip takes it."""
        return sum(part.code << 6 * place for place, part in enumerate((self.result, *self.operands)))


@dataclass(frozen=True)
class Shape:
    """Half of a dual instruction, or a whole one of another kind."""

    result: str
    """LLVM's name of the operand; so are these."""
    sources: tuple[str, ...]
    elements: tuple[Element, ...]
    once: bool = False
    """The result is a scalar."""


def gives_floats(instruction: Instruction) -> bool:
    """Return whether an instruction returns floating-point numbers that may be exceptional, and not NaN by design."""
    name = _ENCODING.sub("", instruction.mnemonic)
    return instruction.is_float and instruction.memory is None and not (_OTHER.match(name) or _FINITE.match(name))


def passes_on_only(instruction: Instruction) -> bool:
    """Return whether an instruction returns exceptional numbers only from exceptional operands."""
    scaled = instruction.operand("omod")
    return bool(_PASSES_ON.match(_ENCODING.sub("", instruction.mnemonic))) and (scaled is None or scaled[1] == 0)


def shapes_of(instruction: Instruction, isa: Isa) -> list[Shape]:
    """Return the shapes of an instruction with floating-point results; two for a dual one.

    Raises:
        HookError: the instruction is not supported.
    """
    if dual := _DUAL.match(instruction.opcode.pseudo):
        halves = (_half(instruction, half, name.lower()) for half, name in zip("XY", dual.groups(), strict=True))
        return [half for half in halves if half is not None]
    sources = tuple(name for name in ("src0", "src1", "src2", "imm") if instruction.operand(name) is not None)
    name = _ENCODING.sub("", instruction.mnemonic)
    scalar = name.startswith(("s_", "v_s_"))
    result = "sdst" if instruction.operand("sdst") is not None and scalar else "vdst"
    elements, read = _elements_of(name, instruction, _Places(instruction, isa, result, sources))
    return [Shape(result, tuple(sources[one] for one in read), elements, scalar)]


def _half(instruction: Instruction, half: str, name: str) -> Shape | None:
    """Return one half of a dual instruction; None if it returns no floating-point numbers.

    Raises:
        HookError: it is not supported.
    """
    match = _ONE_TYPE.match(f"v_{name}")
    if match is None:
        if re.search(r"f16|f32|f64|bf16", name) and not name.startswith("dot2"):
            raise HookError(f"instructions of this kind are not examined: v_{name}")
        match = _DOT.match(f"v_{name}")
        if match is None:
            return None
    names = [f"src0{half}", f"vsrc1{half}", f"vsrc2{half}", f"src2{half}"]
    if "aak" in name or "amk" in name:
        names.append("imm")
    sources = tuple(one for one in names if instruction.operand(one) is not None)
    if match.re is _DOT:
        return Shape(f"vdst{half}", sources, (_dot(match[1], match[2], len(sources)),))
    operands = tuple(Part(number, match[3]) for number in range(len(sources)))
    return Shape(f"vdst{half}", sources, (Element(Part(0, match[3]), operands),))


class _Places:
    """Places in registers where an instruction finds and leaves its numbers.

    Args:
        result: LLVM's name of the operand; so are `sources`.
    """

    def __init__(self, instruction: Instruction, isa: Isa, result: str, sources: Sequence[str]) -> None:
        self._instruction, self._isa, self._result, self.sources = instruction, isa, result, sources

    def bits(self, name: str) -> int:
        """Return an immediate operand; 0 where there is none."""
        operand = self._instruction.operand(name)
        return 0 if operand is None else operand[1]

    def result(self, type: str) -> Part:
        """Return the result.

        Raises:
            HookError: a part of it is written.
        """
        chosen = self._instruction.operand("dst_sel")
        if chosen is not None:
            if chosen[1] < _WORD_1 - 1 or (chosen[1] != _DWORD and type != "f16"):
                raise HookError("it writes a part of its result")
            return Part(0, type, chosen[1] == _WORD_1)
        return Part(0, type, self._is_high(self._result, 3, type))

    def source(self, number: int, type: str) -> Part | None:
        """Return a source; None where it is a part of a register that is never exceptional."""
        chosen = self._instruction.operand(f"{self.sources[number]}_sel")
        if chosen is None:
            return Part(number, type, self._is_high(self.sources[number], number, type))
        if chosen[1] < _WORD_1 - 1 or (chosen[1] != _DWORD and type != "f16"):
            return None  # a byte, or half of a larger number, with zeros above it
        return Part(number, type, chosen[1] == _WORD_1)

    def _is_high(self, name: str, bit: int, type: str) -> bool:
        if type not in ("f16", "bf16"):
            return False
        kind, number = self._instruction.operand(name) or (0, 0)
        if kind == OperandKind.REGISTER and self._isa.register(number).name.endswith(("_HI16", "_LO16")):
            return False  # the hook is given that half
        return bool(self.bits("op_sel") >> bit & 1)


def _elements_of(name: str, instruction: Instruction, places: _Places) -> tuple[tuple[Element, ...], Sequence[int]]:
    """Return what an instruction gives, and the sources that it reads.

    Raises:
        HookError: it is not known.
    """
    count = len(places.sources)
    if match := _ONE_TYPE.match(name):
        read = _READ.get(match[2], tuple(range(count)))
        if match[1]:
            return tuple(_packed(places, match[3], len(read))), read
        given = (places.source(number, match[3]) for number in read)
        own = tuple(replace(one, operand=at) for at, one in enumerate(given) if one is not None)
        return (Element(places.result(match[3]), own),), read
    if match := _CONVERSION.match(name):
        source = places.source(0, match[2]) if match[2] in TYPES else None
        return (Element(places.result(match[1]), () if source is None else (source,)),), () if source is None else (0,)
    if match := _PAIR.match(name):
        if name.endswith("_sdwa") or instruction.operand("dst_sel") is not None:
            raise HookError("it writes a part of its result")
        return tuple(Element(Part(0, match[1], bool(at)), (Part(at, "f32"),)) for at in range(2)), (0, 1)
    if match := _MIXED.match(name):
        half, wide = places.bits("op_sel"), places.bits("op_sel_hi")
        operands = tuple(
            Part(number, "f16", bool(half >> number & 1)) if wide >> number & 1 else Part(number, "f32")
            for number in range(count)
        )
        result = Part(0, "f16", match[1] == "hi") if match[1] else Part(0, "f32")
        return (Element(result, operands),), range(count)
    if match := _DOT.match(name):
        element = _dot(match[1], match[2], count)
        if match[1] == "f32":
            if places.bits("op_sel") or places.bits("op_sel_hi") & 3 not in (0, 3):
                raise HookError("it takes its operands from other halves of registers")
            return (element,), range(count)
        *pairs, last = element.operands
        last = places.source(count - 1, match[1]) or last
        return (Element(places.result(match[1]), (*pairs, last)),), range(count)
    raise HookError("instructions of this kind are not examined")


def _packed(places: _Places, type: str, count: int) -> Iterator[Element]:
    """Yield the elements of packed numbers: each takes its operands from the halves that the instruction says."""
    for high, name in ((False, "op_sel"), (True, "op_sel_hi")):
        bits = places.bits(name)
        yield Element(
            Part(0, type, high), tuple(Part(number, type, bool(bits >> number & 1)) for number in range(count))
        )


def _dot(result: str, type: str, count: int) -> Element:
    """Return the result of a dot product of pairs, with what it is added to last."""
    pairs = tuple(Part(number, type, high) for number in range(2) for high in (False, True))
    return Element(Part(0, result), (*pairs, *(Part(number, result) for number in range(2, count))))
