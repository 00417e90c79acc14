"""Refusals of the emulator for a generation whose instructions are not all known to mean what its parent's do."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Gates(Struct, frozen=True, eq=False, kw_only=True):
    """The instructions that mean what those of an older generation do; the others are refused by name."""

    name: str
    """The generation, in messages."""
    base: str
    """The generation whose operations it has, in messages."""
    own_opcodes: str
    """What LLVM's names of opcodes contain that the older generation does not have."""
    same: frozenset[str]
    """Operations that are known, with opcodes of the generation's own: of the older one with another set of operands,
    of still older ones, or under new names."""
    different: Mapping[str, str]
    """Operations that are refused, as regular expressions for how their names begin -> why."""
    not_clamped: tuple[str, ...]
    """Operations whose clamping is not modelled."""
