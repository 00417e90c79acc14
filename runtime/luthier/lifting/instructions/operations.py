"""Classification of instructions by mnemonic: class, and floating-point and matrix operations.

Operations are counted as in ROCm's profilers (rocprofiler-compute, "VALU arithmetic instruction mix"): an addition,
subtraction, multiplication or transcendental function counts as one, a fused multiply-add as two; comparisons, minima,
conversions and roundings do not count. A matrix instruction does 2·M·N·K for each of its blocks, regardless of EXEC.
"""

from __future__ import annotations

import re
from typing import Literal, Protocol

from msgspec import Struct

from luthier.lifting.instructions.effects import Effects
from luthier.lifting.instructions.memory import MemoryAccess

OperationClass = Literal[
    "vector ALU", "matrix", "scalar ALU", "vector memory", "LDS", "scalar memory", "branch", "wait", "other"
]
"""Unit that executes an instruction, or its purpose."""


class Described(Protocol):
    """Properties of an instruction that determine its class (`luthier.lifting.model.Instruction`)."""

    @property
    def mnemonic(self) -> str:
        """Return the first word of the assembly."""

    @property
    def text(self) -> str:
        """Return the assembly."""

    @property
    def memory(self) -> MemoryAccess | None:
        """Return its memory access."""

    @property
    def is_matrix(self) -> bool:
        """Return whether it is a matrix multiplication."""

    @property
    def is_branch(self) -> bool:
        """Return whether it is a branch."""

    @property
    def is_call(self) -> bool:
        """Return whether it is a call."""

    @property
    def effects(self) -> Effects:
        """Return the registers that it writes."""


_TYPES = "f16|f32|f64|bf16"
_VECTOR = re.compile(
    rf"v_(?P<packed>pk_)?(?P<name>[a-z]+?)(?:_legacy|_dx9_zero|_iflag)?_(?P<type>{_TYPES})(?:_e32|_e64|_dpp|_sdwa|_e64_dpp|$)"
)
_DUAL = re.compile(rf"v_dual_(?P<name>[a-z]+|dot2acc_f32)(?:_dx9_zero)?_(?P<type>{_TYPES})\b")
_SCALAR = re.compile(r"(?:v_)?s_(?P<name>add|sub|mul|fmac|fmamk|fmaak|exp|log|rcp|rsq|sqrt)_(?P<type>f16|f32)(?:_|$)")
_MIX = re.compile(r"v_(?:fma|mad)_mix(?:lo|hi)?_(?P<type>f32|f16|bf16)")
_DOT = re.compile(r"v_dot(?P<count>[248])(?:c|acc)?_(?:f32|f16|bf16)_(?P<type>f16|bf16|fp8|bf8)(?:_|$)")
MATRIX_NAME = re.compile(
    r"v_(?:mfma|smfmac|wmma|swmmac)(?:_ld)?(?:_scale\d*)?_(?P<to>[a-z]+\d+(?:f32)?)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
    r"(?:_(?P<blocks>\d+)b)?_?(?P<type>[a-z]+\d+(?:f\d+)*)"
)
_FLOAT = re.compile(r"(?:_|\dx\d+|_\d+b_|\d)(?:bf16|f16|f32|f64|xf32|f8f6f4|fp[468]|bf[68])(?=_|\b|bf|f|x)")
"""A floating-point type in a mnemonic; in matrix instructions it may follow the sizes."""
_ONE = frozenset(("add", "sub", "subrev", "mul", "rcp", "rsq", "sqrt", "exp", "log", "sin", "cos", "tanh"))
_TWO = frozenset(("fma", "mad", "mac", "fmac", "fmamk", "fmaak", "madmk", "madak"))
_WAVE_LANES = 64
"""Number of lanes of the result of a matrix instruction without blocks in its name: those of GFX9 have wave64."""


class Operations(Struct, frozen=True):
    """Operations of one execution of an instruction."""

    type: str
    """Type of the input numbers."""
    count: int
    """Number for each active lane, or for the wave."""
    per: Literal["lane", "wave"]
    matrix: bool = False


def is_float(instruction: Described) -> bool:
    """Return whether an instruction computes with, compares, rounds or converts floating-point numbers."""
    name = instruction.mnemonic
    return _FLOAT.search(instruction.text if name.startswith("v_dual_") else name) is not None


def class_of(instruction: Described) -> OperationClass:
    """Return the class of the unit that executes an instruction."""
    access = instruction.memory
    if instruction.is_matrix:
        return "matrix"
    if access is not None:
        if access.space == "lds":
            return "LDS"
        return "scalar memory" if access.space.startswith("scalar") else "vector memory"
    if instruction.mnemonic.startswith("ds_"):  # lanes exchange values through its crossbar
        return "LDS"
    if instruction.is_branch or instruction.is_call:
        return "branch"
    if instruction.mnemonic.startswith(("s_wait", "s_nop", "s_delay", "s_sleep", "s_clause")):
        return "wait"
    if instruction.mnemonic.startswith("s_"):
        return "scalar ALU"
    return "vector ALU" if instruction.mnemonic.startswith("v_") else "other"


def operations_of(instruction: Described) -> list[Operations]:
    """Return the floating-point operations of one instruction, and those of matrix instructions of any type."""
    name = instruction.mnemonic
    if instruction.is_matrix:
        return [_matrix(instruction)]
    if name.startswith("v_dual_"):
        operations = [_vector(match["name"], match["type"], 1) for match in _DUAL.finditer(instruction.text)]
        return list(filter(None, operations))
    if match := _SCALAR.match(name):
        return [Operations(match["type"], 2 if match["name"] in _TWO else 1, "wave")]
    if match := _MIX.match(name):
        return [Operations(match["type"], 2, "lane")]
    if match := _DOT.match(name):
        return [Operations(match["type"], 2 * int(match["count"]), "lane")]
    if name.startswith("v_div_fmas_f"):
        return [Operations(name[len("v_div_fmas_") :].partition("_")[0], 2, "lane")]
    if match := _VECTOR.match(name):
        operation = _vector(match["name"], match["type"], 2 if match["packed"] else 1)
        return [] if operation is None else [operation]
    return []


def _vector(name: str, type: str, elements: int) -> Operations | None:
    each = 4 if name.startswith("dot2") else 2 if name in _TWO else 1 if name in _ONE else 0
    return Operations(type, each * elements, "lane") if each else None


def _matrix(instruction: Described) -> Operations:
    """Return the type and operations of a matrix instruction; a sparse one counts as if it were dense."""
    match = MATRIX_NAME.match(instruction.mnemonic)
    if match is None:
        return Operations("unknown", 0, "wave", matrix=True)
    m, n, k = int(match["m"]), int(match["n"]), int(match["k"])
    blocks = int(match["blocks"] or 0) or _blocks(instruction, m * n, match["to"])
    return Operations(match["type"], 2 * m * n * k * blocks, "wave", matrix=True)


def _blocks(instruction: Described, elements: int, to: str) -> int:
    """Return the number of matrix products of an MFMA without blocks in its name, by the size of its result."""
    if "mfma" not in instruction.mnemonic:
        return 1
    registers = instruction.effects.writes.bit_count()
    return max(1, registers * _WAVE_LANES // (elements * (2 if to == "f64" else 1)))
