"""Text that front ends show of a stopped launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from luthier.debug.debugger import Debugger
from luthier.debug.locations import NotAvailable, text
from luthier.debug.stops import Stop
from luthier.debug.view import StoppedWave
from luthier.objects.variables import DwarfVariable

_SHOWN_LANES = 8


def source_line(file: str, line: int) -> str | None:
    """Return a line of a source file, None where it is not there."""
    try:
        lines = Path(file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    return lines[line - 1] if 0 < line <= len(lines) else None


def place(view: StoppedWave) -> str:
    """Return in one line which instruction a wave is before, and its place in the source."""
    frames = view.frames
    where = f", {frames[0].name} at {frames[0].place}" if frames else ""
    return f"work-group {view.workgroup} wave {view.wave} {view.pc:#x} {view.text}{where}"


def stopped(debugger: Debugger, stop: Stop) -> str:
    """Return what is said of a stop: why, where, and the line of the source."""
    numbers = ", ".join(map(str, stop.numbers))
    why = f"{stop.why} {numbers}: " if stop.why in ("breakpoint", "watchpoint") else ""
    detail = f"{stop.text}\n" if stop.text else ""
    if stop.why in ("end", "fault"):
        return f"{detail}the launch has {'ended' if stop.why == 'end' else 'failed'} after {stop.position} instructions"
    view = debugger.view()
    frames = view.frames
    line = source_line(frames[0].file, frames[0].line) if frames else None
    source = "" if line is None else f"\n{frames[0].line:6}  {line}"
    return f"{why}{detail}[{stop.position}] {place(view)}{source}"


def variable(view: StoppedWave, one: DwarfVariable, lane: int) -> str:
    """Return the value of a variable in a lane, or why there is none."""
    try:
        found = view.bytes_of(one)[lane]
        if view.registers.exec & ~view.lanes_of(one) & 1 << lane:
            return f"<optimised away here in lane {lane}>"
        return text(one.type, found.tobytes())
    except NotAvailable as problem:
        return f"<{problem}>"


def value(view: StoppedWave, result: Any, lane: int | None = None) -> str:
    """Return the value of an expression: of what differs by lane that of one, or of the active ones."""
    array = np.asarray(result)
    if array.shape[:1] != (view.registers.wave_size,):
        return str(result)
    if lane is not None:
        return str(array[lane])
    active = [one for one in range(len(array)) if view.registers.exec >> one & 1]
    if not active:
        return "no lane is active"
    if all(np.array_equal(array[one], array[active[0]]) for one in active):
        return f"{array[active[0]]} in all {len(active)} active lanes"
    shown = ", ".join(f"{one}: {array[one]}" for one in active[:_SHOWN_LANES])
    return f"by lane {shown}" + (f", … {len(active)} in all" if len(active) > _SHOWN_LANES else "")


def first_active(view: StoppedWave) -> int:
    """Return the first active lane; 0 where there is none."""
    mask = view.registers.exec
    return (mask & -mask).bit_length() - 1 if mask else 0
