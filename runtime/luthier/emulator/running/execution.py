"""Execution of waves to their end or to a fault; records are bound meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.running import hot
from luthier.emulator.running.executor import Executor, StructureBlock
from luthier.emulator.running.memory import AllocationTable
from luthier.emulator.running.progress import named_places, progress_lines
from luthier.emulator.running.report import explain
from luthier.emulator.running.worker import WorkerState, worker_at
from luthier.errors import EmulationError

QUANTUM = 4096
"""Backward branches and jumps a wave takes in one turn."""
STEPPED_QUANTUM = 16
"""Quantum where Python observes every instruction."""
_LOOKS = 50
"""The search for hot code takes at most this fraction (1 / `_LOOKS`) of a launch."""

Observer = Callable[[WorkerState], bool]
"""Called before every instruction with the worker whose current wave will execute it; False ends the launch."""


def sources_of(observed: int) -> int:
    """Return the sources of undefined values that observations need: bits such as `layout.LANE_VALUES`."""
    return layout.UNWRITTEN_VALUES * bool(observed & layout.OBSERVE_UNDEFINED) | layout.LANE_VALUES * bool(
        observed & layout.OBSERVE_LANES
    )


class ExecutionOutcome(Struct, frozen=True):
    """Outcome of an execution."""

    counts: NDArray[np.uint64]
    """Executions by record."""
    lanes: NDArray[np.uint64]
    """Active lanes by record, summed over its executions."""
    seconds: float
    """Wall-clock time, without compiling before the launch."""
    fault: EmulationError | None


def execute(
    executor: Executor,
    memory: AllocationTable,
    code: DecodedCode,
    plan: Mapping[str, int],
    dispatch: Mapping[str, int],
    name: str,
    *,
    parts: Sequence[Mapping[str, int]] = ({},),
    step_limit: int,
    observer: Observer | None = None,
    stepped: bool = False,
    observed: int = 0,
    quantum: int = QUANTUM,
) -> ExecutionOutcome:
    """Run all work-groups of a dispatch.

    Args:
        plan: fields of `layout.PLAN`.
        dispatch: fields of `layout.DISPATCH` that this function does not set.
        name: name of the kernel for reports.
        parts: fields of `layout.DISPATCH` that differ between parts of the grid.
        step_limit: quanta that a work-group may use.
        observer: sees every instruction.
        stepped: run on this thread; implied by an observer.
        observed: what to look for, bits such as `layout.OBSERVE_RACES`. The plan must have `uses`, and for float
            results `DecodedCode.floats` must be set. The executor keeps what it sees until `Executor.forget`.
        quantum: backward branches of a wave's turn, without an observer.

    Raises:
        BaseException: an exception of the observer or of a signal handler.
    """
    entry = plan["entry"] // layout.RECORD.size
    if observed:
        plan, dispatch = {**plan, **_observing(observed, plan["key"])}, {**dispatch, "observe": observed}
    code.ensure(plan["key"] | (layout.STEPPING if observer else 0), entry)
    if observer is not None:
        key = plan["key"] | layout.STEPPING
        code.start_at(key, entry)
        plan = {**plan, "key": key, "stepping": layout.STEPPING, "entry": code.begin * layout.RECORD.size}
        quantum, step_limit = STEPPED_QUANTUM, STEPPED_QUANTUM * step_limit
    else:
        step_limit *= QUANTUM
    totals = np.zeros((2, code.count + 1), np.uint64)
    table, holders = memory.table()
    planned = StructureBlock(layout.PLAN, plan)

    def describe() -> list[str]:
        progress = executor.progress()
        return progress_lines(progress, named_places(progress, code, name, code.address_of(entry)))

    helper = _Helper(memory, name, code, observer, describe)
    has_runs = observer is None and not dispatch.get("watch")
    made = {
        "plan": planned.address,
        "stepped": stepped or observer is not None,
        "quantum": quantum,
        "step_limit": step_limit,
        "ranges": table.ctypes.data,
        "range_count": len(table),
        "counts": totals[0].ctypes.data,
        "lanes": totals[1].ctypes.data,
    }
    began = time.perf_counter()
    executor.run(
        [{**dispatch, **made, **part} for part in parts],
        helper,
        _search_for_hot_code(executor, code) if has_runs else None,
        describe,
    )
    seconds = time.perf_counter() - began
    del holders, planned
    if has_runs:
        hot.heat(code).add(totals[0, :-1])
    return ExecutionOutcome(totals[0, :-1], totals[1, :-1], seconds, helper.fault)


def _observing(observed: int, key: int) -> dict[str, int]:
    """Return the fields of `layout.PLAN` for observations.

    Args:
        key: that of the plan.
    """
    values = layout.OBSERVE_VALUES
    bits = layout.OBSERVED if observed & ~(values | layout.OBSERVE_LDS) else 0
    bits |= layout.WATCHED_VALUES if observed & values else 0
    return {"key": key | bits, "stepping": bits, "undefined": sources_of(observed)}


class _Helper(Struct):
    """Helps the native threads of a dispatch where Python is needed."""

    memory: AllocationTable
    name: str
    code: DecodedCode
    observer: Observer | None
    describe: Callable[[], list[str]]
    workers: dict[int, WorkerState] = field(default_factory=dict)
    """By address of the context."""
    fault: EmulationError | None = None
    """The first one."""

    def __call__(self, reason: int, context: int, group: int, key: int, record: int) -> bool:
        """Bind records, pass a step to the observer, or explain a fault; return whether the worker goes on."""
        if reason in (layout.UNBOUND, layout.MODE):
            self.code.ensure(key, record)
            return True
        worker = self.workers.get(context)
        if worker is None:
            worker = self.workers[context] = worker_at(self.code, context, group)
        if reason == layout.STEP and self.observer is not None:
            return self.observer(worker)
        error = explain(self.memory, self.name, self.code, worker, reason, self.describe)
        self.fault = self.fault or error
        return False


def _search_for_hot_code(executor: Executor, code: DecodedCode) -> Callable[[], None]:
    """Return the function that looks for hot code now and then; it does nothing if it is called too soon."""
    due = time.perf_counter()

    def look() -> None:
        nonlocal due
        now = time.perf_counter()
        if now >= due:
            hot.heat(code).look(executor.frequent(code.number, code.count))
            executor.take_runs()
            due = now + _LOOKS * (time.perf_counter() - now)

    return look
