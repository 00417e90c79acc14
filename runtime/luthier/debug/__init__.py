"""A debugger for captured launches: forwards and backwards, by source line or instruction, for a terminal and for
editors that support the Debug Adapter Protocol."""

from __future__ import annotations

from luthier.debug.debugger import Debugger
from luthier.debug.stops import Breakpoint, Stop, Watchpoint

__all__ = ["Breakpoint", "Debugger", "Stop", "Watchpoint"]
