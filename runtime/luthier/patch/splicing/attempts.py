"""Attempts to bind the hooks of a task: first without spills, then with spills or fewer hooks."""

from __future__ import annotations

from collections.abc import Container

from luthier.patch.payloads.assignment import TooFewRegisters
from luthier.patch.splicing.splicer import Attempt, Spliced, spliced
from luthier.tool.task import InstrumentationTask


def splice(task: InstrumentationTask) -> Spliced:
    """Compile and bind the insertions of one task. If a point has too few registers, payloads of the kernel may spill,
    unless the task's budget forbids it.

    Raises:
        LuthierError: an insertion is refused and the task's options are strict, or something cannot be counted.
    """
    strict, budget = task.options.strict, task.options.hook_budget
    on_excess = "keep" if budget is None else budget.on_excess
    if on_excess == "refuse":
        return spliced(task, Attempt(strict, spill=False))
    sample = on_excess == "sample"
    try:
        first = spliced(task, Attempt(strict and not sample, spill=False, enough=not sample))
    except TooFewRegisters:
        return _spilling(task, strict=strict)
    if not first.starved and not first.state.homeless:
        return spliced(task, Attempt(strict=True, spill=False)) if strict and first.refusals else first
    every = 1 if budget is None else budget.every
    left_out = {number for count, number in enumerate(sorted(first.starved)) if count % every}
    return _spilling(task, strict=strict, left_out=left_out)


def _spilling(task: InstrumentationTask, *, strict: bool, left_out: Container[int] = frozenset()) -> Spliced:
    """Splice with spills. If no payload spills to LDS, the result is the same as without LDS."""
    first = spliced(task, Attempt(strict, spill=True, left_out=left_out))
    if first.state.wave_lds is None or first.lds > first.hook_lds:
        return first
    return spliced(task, Attempt(strict, spill=True, left_out=left_out, no_lds=first.no_lds))
