"""Stops of a launch, and the breakpoints and watchpoints that cause them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from luthier.debug.expressions import ParsedExpression

Why = Literal["entry", "step", "breakpoint", "watchpoint", "pause", "end", "fault"]


class Stop(Struct, frozen=True):
    """Position and reason of a stop."""

    why: Why
    position: int
    """Number of instructions executed before the stop."""
    text: str = ""
    """Message of a watchpoint or a fault."""
    numbers: tuple[int, ...] = ()
    """Numbers of the breakpoints and watchpoints that caused it."""


class Breakpoint(Struct):
    """Stops before instructions."""

    number: int
    text: str
    """Requested place."""
    addresses: frozenset[int]
    nearest: str = ""
    """The line used instead, and its function, if the requested line has no code."""
    condition: ParsedExpression | None = None
    ignore: int = 0
    """How often it is passed before it stops."""
    temporary: bool = False
    hits: int = 0
    problem: str = ""
    """Why the condition had no value at the last stop; empty if it had one."""

    @property
    def where(self) -> str:
        """Return the breakpoint's place as text, with a note if the requested line has no code."""
        places = ", ".join(f"{address:#x}" for address in sorted(self.addresses))
        made = f"breakpoint {self.number} at {places}"
        return f"no code at {self.text}; {made}, {self.nearest}" if self.nearest else made


@dataclass
class Watchpoint:
    """Stops after an instruction that changes a value: bytes of memory, or an expression in one wave."""

    number: int
    text: str
    address: int = 0
    size: int = 0
    """Bytes of memory; 0: an expression."""
    expression: ParsedExpression | None = None
    wave: tuple[int, int] = (0, 0)
    """Work-group and wave in which the expression is evaluated."""
    last: Any = field(default=None, repr=False)
    change: str = ""
    """The last change as text."""
    hits: int = 0
