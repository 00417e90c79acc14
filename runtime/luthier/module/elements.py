"""Element types of tools' variables, from their C++ types as written."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_QUALIFIERS = re.compile(r"\b(?:const|volatile|static|constexpr|inline|std::)\b|\bstd::")
_ARRAY = re.compile(r"\s*\[\d*\]")
_WORDS = {
    **{f"{sign}int{bits}_t": f"{'u' if sign else 'i'}{bits // 8}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": "u1",
    "char": "i1",
    "signed char": "i1",
    "unsigned char": "u1",
    "size_t": "u8",
    "uintptr_t": "u8",
    "short": "i2",
    "unsigned short": "u2",
    "int": "i4",
    "unsigned": "u4",
    "unsigned int": "u4",
    "float": "f4",
    "long": "i8",
    "unsigned long": "u8",
    "long long": "i8",
    "unsigned long long": "u8",
    "double": "f8",
    "ptrdiff_t": "i8",
    "intptr_t": "i8",
    "_Float16": "f2",
    "__half": "f2",
    "half": "f2",
}


def element_type(type: str, size: int) -> np.dtype[Any] | None:
    """Return the type of a variable's elements, for any number of dimensions; None if they are not numbers.

    Args:
        type: C++ type; if unknown, the size determines an unsigned type.
        size: bytes.
    """
    plain = " ".join(_ARRAY.sub("", _QUALIFIERS.sub("", type)).split())
    name = "u8" if plain.endswith("*") else _WORDS.get(plain)
    if name is None and size in (1, 2, 4, 8):
        name = f"u{size}"
    dtype = None if name is None else np.dtype(f"<{name}")
    return dtype if dtype is not None and size % dtype.itemsize == 0 else None
