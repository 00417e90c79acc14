"""LLVM types as spelled in textual IR: kind and size of their values."""

from __future__ import annotations

import functools
import re

from luthier.errors import HookError

PRIVATE_POINTER = "ptr addrspace(5)"

_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
_INTEGER = re.compile(r"i(\d+)")
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_POINTER = re.compile(r"ptr(?: addrspace\((\d+)\))?")
_SHORT_POINTERS = ("2", "3", "5", "6")
"""Address spaces with 32-bit pointers: region, LDS, private, 32-bit constant (LLVM, AMDGPUUsage, "Address Spaces")."""
_IN_REGISTERS = ("i1", "i8", "i16", "i32", "i64", *_BITS)
_IN_VECTORS = ("i32", "i64", "float", "double")


@functools.cache
def integer_bits(kind: str) -> int:
    """Return the width of an integer type, 0 for any other."""
    integer = _INTEGER.fullmatch(kind)
    return int(integer[1]) if integer else 0


@functools.cache
def bits_of(kind: str) -> int:
    """Return the width of a type; 0 if it is neither a number, a pointer nor a vector of numbers."""
    if vector := _VECTOR.fullmatch(kind):
        return int(vector[1]) * bits_of(vector[2])
    if pointer := _POINTER.fullmatch(kind):
        return 32 if pointer[1] in _SHORT_POINTERS else 64
    return integer_bits(kind) or _BITS.get(kind, 0)


@functools.cache
def units_of(kind: str) -> int:
    """Return the number of 32-bit register units of a value.

    Raises:
        HookError: hooks cannot take the type in registers.
    """
    vector = _VECTOR.fullmatch(kind)
    if not (kind in _IN_REGISTERS or _POINTER.fullmatch(kind) or (vector and vector[2] in _IN_VECTORS)):
        raise HookError(f"a value of type {kind} cannot be passed in registers")
    return -(-bits_of(kind) // 32)


def kind_of(kind: str, signed: bool | None = None) -> str:
    """Return the kind of parameter (`Parameter.kind`) of a type.

    Args:
        signed: whether an integer is signed; None if unknown, since the type does not tell.
    """
    if kind == "i1":
        return "bool"
    if kind.startswith("ptr"):
        return "pointer"
    if kind.startswith("<"):
        return "vector"
    if integer_bits(kind):
        return {True: "int", False: "uint", None: "integer"}[signed]
    return "float"
