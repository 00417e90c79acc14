"""LLVM's MC layer for AMDGPU, native. Use `luthier.mc`, which gives it types and errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LLVM_VERSION: str

class McError(ValueError):
    """What LLVM refuses; `args` are its message and a 1-based source line (0: none)."""

_Columns = tuple[
    NDArray[np.int64],  # offset
    NDArray[np.int32],  # size
    NDArray[np.int32],  # opcode
    NDArray[np.uint32],  # flags
    NDArray[np.int64],  # target
    NDArray[np.int32],  # operand_start
    NDArray[np.uint8],  # operand_kind
    NDArray[np.int64],  # operand_value
]
_Fixup = tuple[int, int, str, str, str, int, str]

class Isa:
    def __init__(self, cpu: str, features: str) -> None: ...
    def decode(self, code: bytes | bytearray | memoryview, address: int, patient: bool = False) -> _Columns:
        """`patient` offers LLVM all bytes that follow each instruction: the same result, slower; for tests."""
    def encode(
        self,
        opcode: NDArray[np.int32],
        operand_start: NDArray[np.int32],
        operand_kind: NDArray[np.uint8],
        operand_value: NDArray[np.int64],
    ) -> tuple[bytes, NDArray[np.int32]]: ...
    def print(
        self,
        opcode: NDArray[np.int32],
        operand_start: NDArray[np.int32],
        operand_kind: NDArray[np.uint8],
        operand_value: NDArray[np.int64],
        addresses: NDArray[np.int64],
    ) -> list[str]: ...
    def assemble(self, source: str) -> tuple[_Columns, bytes, list[tuple[str, int]], list[_Fixup]]: ...
    def describe_opcode(
        self, opcode: int
    ) -> tuple[
        str, str, str, int, list[tuple[str, bool, int, int, int]], list[int], list[int], int, int, int, bool
    ]: ...
    register_count: int
    def register(self, number: int) -> tuple[str, str, int, int, bool]:
        """LLVM's name, the assembly text, first unit, number of units, whether it is a half."""
    def register_units(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]:
        """By register: first unit, number of units, whether it is a half, whether this processor's encoder takes it."""
    def register_numbers(self) -> dict[str, int]: ...
    def register_class_name(self, id: int) -> str: ...
    def register_classes(self) -> list[tuple[str, list[int]]]: ...

def opcode_names() -> list[str]: ...
def opcode_numbers(names: list[str]) -> list[int]:
    """-1 where there is none of that name."""

def host() -> tuple[str, list[str]]:
    """Name and features of the CPU this runs on, as LLVM calls them."""

def set_operand_names(numbers: dict[str, int]) -> None: ...
def named_operand_positions(opcode: int, names: int) -> list[int]: ...
