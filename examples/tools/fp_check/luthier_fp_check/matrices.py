"""Matrix products: their operands by register, and the types in these."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from luthier import Instruction, InstrumentationTask
from luthier.errors import HookError
from luthier.isa import OperandKind, RegisterRange

from luthier_fp_check.shapes import Part

_PRODUCT = re.compile(
    r"v_(mfma|smfmac|wmma|swmmac)_(f64|f32|f16|bf16)_\d+x\d+x\d+_?(?:\d+b_)?"
    r"(?:(f64|x?f32|f16|bf16)(?:_1k)?|([fb][pf]8)_([fb][pf]8))$"
)
_TYPES = ("f16", "bf16", "f32", "f64", "fp8", "bf8", "fp8 of NaN alone", "bf8 of NaN alone")
_LOW, _HIGH, _BOTH = 1, 2, 3
"""Halves of registers with numbers of 16 bits."""
_NAN_ALONE = ("gfx940", "gfx941", "gfx942")
"""Processors whose numbers of 8 bits have one NaN and no infinity (CDNA3 ISA)."""
_ELEMENTS = 256
"""Elements of results of 16 bits."""


@dataclass(frozen=True)
class Matrix:
    """A, B, C or D: its registers and their contents."""

    registers: RegisterRange
    form: int
    """Type and halves, as in device.hip."""

    @property
    def count(self) -> int:
        """Return the number of registers."""
        return self.registers.count

    def numbers(self) -> Iterator[tuple[RegisterRange, tuple[Part, ...]]]:
        """Yield registers, or pairs of them, each with its numbers."""
        type, halves = _TYPES[self.form >> 2], self.form & _BOTH
        step = 2 if type == "f64" else 1
        parts: tuple[Part, ...] = (Part(0, type),)
        if type in ("f16", "bf16"):
            parts = tuple(Part(0, type, bool(high)) for high in range(2) if halves >> high & 1)
        for first in range(self.registers.first, self.registers.first + self.count, step):
            yield RegisterRange(first, step), parts


@dataclass(frozen=True)
class Product:
    """A matrix product."""

    result: Matrix
    operands: tuple[Matrix, ...]
    """A, B and C, without those that are numbers."""


def product_of(task: InstrumentationTask, instruction: Instruction) -> Product:
    """Return the product of a matrix instruction with float results.

    Raises:
        HookError: the instruction is not supported.
    """
    match = _PRODUCT.match(instruction.mnemonic)
    if match is None:
        raise HookError("matrix products of this kind are not examined")
    kind, result, both, left, right = match.groups()
    target, narrow = task.lifted.target, _BOTH
    (made,) = _matrices(task, instruction, (("vdst", result, narrow),))
    if result in ("f16", "bf16") and made.count * task.lifted.wave_size == _ELEMENTS:  # one in each register
        narrow = _HIGH if _is_high(instruction.operand("op_sel"), instruction.operand("src2_modifiers")) else _LOW
    types = [
        f"{name} of NaN alone" if name in ("fp8", "bf8") and target.name in _NAN_ALONE else name
        for name in (left or both.removeprefix("x"), right or both.removeprefix("x"))
    ]
    sums = "vdst" if kind in ("smfmac", "swmmac") else "src2"
    wanted = (("src0", types[0], _BOTH), ("src1", types[1], _BOTH), (sums, result, narrow))
    operands = tuple(_matrices(task, instruction, wanted))
    (made,) = _matrices(task, instruction, (("vdst", result, narrow),))
    return Product(made, operands)


def _is_high(*bits: tuple[OperandKind, int] | None) -> bool:
    selected, modifiers = bits
    return bool((selected is not None and selected[1] & 4) or (modifiers is not None and modifiers[1] & 4))


def _matrices(
    task: InstrumentationTask, instruction: Instruction, wanted: tuple[tuple[str, str, int], ...]
) -> Iterator[Matrix]:
    for name, type, halves in wanted:
        operand = instruction.operand(name)
        if operand is None or operand[0] != OperandKind.REGISTER:
            continue
        register = task.lifted.isa.register(operand[1])
        yield Matrix(RegisterRange(register.first_unit, register.unit_count), _TYPES.index(type) << 2 | halves)
