"""Waves executed: host threads run work-groups of a given beginning until all have ended or one faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import Code
from luthier.emulator.running.crew import CREW
from luthier.emulator.running.memory import Arena, Memory
from luthier.emulator.running.report import explain
from luthier.emulator.running.start import SgprImage, Triple
from luthier.emulator.running.worker import Worker, put_field, table_key
from luthier.errors import EmulationError

GRID_PATIENCE = 5.0
"""Seconds without progress of any work-group of a cooperative launch after which it is a deadlock."""
QUANTUM = 4096
"""Backward branches and jumps a wave takes in one turn."""
STEPPED_QUANTUM = 16
"""The same where Python looks at every instruction."""

Observer = Callable[[Worker], bool]
"""Called before every instruction, with the thread whose current wave is about to execute it; False ends all."""


@dataclass(frozen=True)
class Start:
    """How waves begin, and what they have."""

    code: Code
    entry: int
    """Record of the first instruction."""
    mode: int
    grid: Triple
    """Work-groups."""
    sgprs: SgprImage
    lanes: NDArray[np.uint8]
    """A row for each wave of a work-group: EXEC in the first 8 of 64 bytes, then its first VGPRs."""
    vgprs: int
    """Registers that start as 0, where `lanes` does not say more."""
    agprs: int
    lds: int
    """Bytes of LDS."""
    lds_limit: int
    """Bytes that a work-group may have at most."""
    scratch: int
    """Host address of the first lane's scratch."""
    scratch_lane: int
    """Bytes of scratch a lane."""
    code_base: int
    """Host address of the code's first byte."""
    architected_scratch: bool = False
    scc: int = 0
    lds_image: bytes = b""
    """What LDS begins with; zeros if empty."""

    @property
    def groups(self) -> int:
        """Work-groups."""
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True)
class Outcome:
    """What became of an execution."""

    counts: NDArray[np.uint64]
    """Executions by record."""
    lanes: NDArray[np.uint64]
    """Active lanes by record, summed over its executions."""
    seconds: float
    """Wall-clock time, without compiling ahead."""
    fault: EmulationError | None


class Execution:
    """One run of all work-groups.

    Args:
        name: of the kernel, for reports.
        step_limit: quanta that a work-group may use.
        observer: Python looks at every instruction; then the threads run one after another.
        together: work-groups are all resident, a worker each, and take turns.
    """

    def __init__(
        self,
        start: Start,
        memory: Memory,
        name: str,
        *,
        step_limit: int,
        observer: Observer | None = None,
        together: bool = False,
    ) -> None:
        self._start = start
        self._memory = memory
        self._name = name
        self._step_limit = step_limit
        self._observer = observer
        self._together = together
        self._fault: EmulationError | None = None
        self._lock = threading.Lock()
        self._launch = Arena(layout.LAUNCH.size)

    def run(self, workers: Sequence[Worker], threads: int) -> Outcome:
        """Run to the end, or to a fault, on as many host threads; 0: on this one.

        Raises:
            BaseException: whatever the observer raised, or a signal's handler.
        """
        start, code = self._start, self._start.code
        stepping = layout.STEPPING if self._observer is not None else 0
        key = layout.mode_key(start.mode) | stepping
        code.ensure(key, start.entry)
        keep = self._fill(stepping)
        table, holders = self._memory.table()
        for worker in workers:
            worker.prepare(code, key, len(start.lanes), start.lds, start.lds_limit, start.scratch, start.scratch_lane)
            if stepping:
                worker.begin_at(key, start.entry)
            worker.context(
                launch=self._launch.address,
                ranges=table.ctypes.data,
                range_count=len(table),
                code_base=start.code_base,
                code_size=code.size,
                code_index=code.index.ctypes.data,
                resume=0,
                accesses=0,
            )
        began = time.perf_counter()
        if threads == 0:
            for worker in workers:
                self._work(worker)
        elif self._together:
            shares = [list(workers[first::threads]) for first in range(threads)]
            CREW.spread(self._work_together, [share for share in shares if share], self._abort)
        else:
            CREW.spread(self._work, workers, self._abort)
        seconds = time.perf_counter() - began
        del keep, holders
        totals = np.zeros((2, code.count), np.uint64)
        for worker in workers:
            totals += worker.counts()
        return Outcome(totals[0], totals[1], seconds, self._fault)

    def _fill(self, stepping: int) -> list[object]:
        """The launch structure; what it points to is returned, to be kept."""
        start, code = self._start, self._start.code
        image, row = start.sgprs, 4 * code.isa.wave_size
        lds_image = np.frombuffer(start.lds_image or b"\0", np.uint8)
        quantum = STEPPED_QUANTUM if stepping else QUANTUM
        values: dict[str, int] = {
            "group_count": start.groups,
            "quantum": quantum,
            "step_limit": self._step_limit * quantum,
            "grid_x": start.grid[0],
            "grid_y": start.grid[1],
            "grid_z": start.grid[2],
            "sgpr_image": image.words.ctypes.data,
            "vgpr_bytes": start.vgprs * row,
            "agpr_bytes": start.agprs * row,
            "agprs": layout.agprs(code.isa.wave_size),
            "lane_images": start.lanes.ctypes.data,
            "lane_image_stride": start.lanes.shape[1],
            "lane_image_size": start.lanes.shape[1] - 64,
            "group_id_x": image.group_ids[0],
            "group_id_y": image.group_ids[1],
            "group_id_z": image.group_ids[2],
            "group_info": image.group_info,
            "scratch_offset": image.scratch_offset,
            "wave_id": image.wave_id,
            "wave_id_shift": image.wave_id_shift,
            "packed_yz": image.packed_yz,
            "mode": start.mode,
            "stepping": stepping,
            "cooperative": int(self._together),
            "scc": start.scc,
            "lds_image": lds_image.ctypes.data if start.lds_image else 0,
            "architected_scratch": int(start.architected_scratch),
            "scratch_base": start.scratch,
            "entry": (code.begin if stepping else start.entry) * layout.RECORD.size,
        }
        for name, value in values.items():
            put_field(self._launch.array, layout.LAUNCH, name, value)
        return [start, lds_image]

    # On the worker's thread -----------------------------------------------------------------------------------------

    def _work(self, worker: Worker) -> None:
        """Run work-groups until there are none left."""
        try:
            self._advance(worker)
        except BaseException:
            self._abort()
            raise

    def _work_together(self, workers: list[Worker]) -> None:
        """Run the resident work-groups of a cooperative launch, a round of their waves at a time."""
        try:
            idle_since: float | None = None
            while workers:
                moved = False
                for worker in list(workers):
                    code = self._advance(worker)
                    if code == layout.STOP:
                        return
                    if code == layout.DONE:
                        workers.remove(worker)
                    moved |= code == layout.DONE or worker.group_field("progress") != 0
                now = time.perf_counter()
                idle_since = None if moved else idle_since or now
                if idle_since is not None and now - idle_since > GRID_PATIENCE:
                    self._fail(workers[0], layout.DEADLOCK)
                    return
        except BaseException:
            self._abort()
            raise

    def _advance(self, worker: Worker) -> int:
        """Run a worker until it is done, stopped, or another's turn, helping where compiled code cannot go on."""
        while True:
            code = worker.run()
            if code in (layout.DONE, layout.STOP, layout.SWITCH):
                return code
            if code == layout.UNBOUND:
                wave = worker.current()
                key = table_key(wave)
                self._start.code.ensure(key, worker.record_of(wave))
                worker.sync(key)
            elif code == layout.MODE:
                worker.switch_mode(worker.current())
            elif code == layout.MESSAGE:
                pass  # nobody here waits for interrupts
            elif code == layout.STEP and self._observer is not None:
                if not self._observer(worker):
                    self._abort()
                    return layout.STOP
            else:
                self._fail(worker, code)
                return layout.STOP

    def _abort(self) -> None:
        put_field(self._launch.array, layout.LAUNCH, "abort", 1)

    def _fail(self, worker: Worker, code: int) -> None:
        error = explain(self._memory, self._name, self._start.code, worker, code)
        with self._lock:
            if self._fault is None:
                self._fault = error
        self._abort()
