"""Text about a stopped launch for front ends."""

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
    """Return a line of a source file; None if the file or line does not exist."""
    try:
        lines = Path(file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    return lines[line - 1] if 0 < line <= len(lines) else None


def place(view: StoppedWave) -> str:
    """Return one line with the next instruction of a wave and its source place."""
    frames = view.frames
    where = f", {frames[0].name} at {frames[0].place}" if frames else ""
    return f"work-group {view.workgroup} wave {view.wave} {view.pc:#x} {view.text}{where}"


def stopped(debugger: Debugger, stop: Stop) -> str:
    """Return the text of a stop: reason, location and source line."""
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


def variable(view: StoppedWave, variable: DwarfVariable, lane: int) -> str:
    """Return the value of a variable in a lane, or the reason why there is none."""
    try:
        data = view.bytes_of(variable)[lane]
        if view.registers.exec & ~view.lanes_of(variable) & 1 << lane:
            return f"<optimised away here in lane {lane}>"
        return text(variable.type, data.tobytes())
    except NotAvailable as problem:
        return f"<{problem}>"


def value(view: StoppedWave, result: Any, lane: int | None = None) -> str:
    """Return the value of an expression; if it differs by lane, in one lane or in the active lanes."""
    array = np.asarray(result)
    if array.shape[:1] != (view.registers.wave_size,):
        return str(result)
    if lane is not None:
        return str(array[lane])
    active = [lane for lane in range(len(array)) if view.registers.exec >> lane & 1]
    if not active:
        return "no lane is active"
    if all(np.array_equal(array[lane], array[active[0]]) for lane in active):
        return f"{array[active[0]]} in all {len(active)} active lanes"
    shown = ", ".join(f"{lane}: {array[lane]}" for lane in active[:_SHOWN_LANES])
    return f"by lane {shown}" + (f", … {len(active)} in all" if len(active) > _SHOWN_LANES else "")


def first_active(view: StoppedWave) -> int:
    """Return the first active lane; 0 if there is none."""
    mask = view.registers.exec
    return (mask & -mask).bit_length() - 1 if mask else 0
