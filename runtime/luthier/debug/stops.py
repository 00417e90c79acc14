"""Stops of a launch, and the breakpoints and watchpoints that make them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from luthier.debug.expressions import ParsedExpression

Why = Literal["entry", "step", "breakpoint", "watchpoint", "pause", "end", "fault"]


class Stop(Struct, frozen=True):
    """The place where a launch stopped, and the reason."""

    why: Why
    position: int
    """How many instructions have been executed before."""
    text: str = ""
    """What a watchpoint or a fault says."""
    numbers: tuple[int, ...] = ()
    """Of the breakpoints and watchpoints that it is at."""


class Breakpoint(Struct):
    """Stops before instructions."""

    number: int
    text: str
    """Place as it was asked for."""
    addresses: frozenset[int]
    nearest: str = ""
    """The line that it is at, and whose, where the one that was asked for has no code."""
    condition: ParsedExpression | None = None
    ignore: int = 0
    """How often it is passed before it stops."""
    temporary: bool = False
    hits: int = 0
    problem: str = ""
    """Why the condition had no value where it stopped last; empty if it had one."""

    @property
    def where(self) -> str:
        """Return the breakpoint's place as text, and that it is another one than was asked for."""
        places = ", ".join(f"{one:#x}" for one in sorted(self.addresses))
        made = f"breakpoint {self.number} at {places}"
        return f"no code at {self.text}; {made}, {self.nearest}" if self.nearest else made


@dataclass
class Watchpoint:
    """Stops behind an instruction that changes a value: bytes of memory, or an expression in one wave."""

    number: int
    text: str
    address: int = 0
    size: int = 0
    """Bytes of memory; 0: it is an expression."""
    expression: ParsedExpression | None = None
    wave: tuple[int, int] = (0, 0)
    """Work-group and wave in which the expression is looked at."""
    last: Any = field(default=None, repr=False)
    change: str = ""
    """The last change, in words."""
    hits: int = 0
