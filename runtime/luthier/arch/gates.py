"""Refusals of the emulator for a generation whose instructions may differ from its parent's."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Gates(Struct, frozen=True, eq=False, kw_only=True):
    """Instructions that mean the same as on an older generation; others are refused by name."""

    name: str
    """The generation's name in messages."""
    base: str
    """Name in messages of the generation whose operations it uses."""
    own_opcodes: str
    """Part of LLVM's names of opcodes that the older generation lacks."""
    same: frozenset[str]
    """Known operations with own opcodes: of the older generation with other operands, of still older generations, or
    under new names."""
    different: Mapping[str, str]
    """Refused operations: regular expressions for prefixes of their names -> reason."""
    not_clamped: tuple[str, ...]
    """Operations whose clamping is not modelled."""
