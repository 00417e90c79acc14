"""A wave's registers before and after an instruction, and a bench that runs single instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from luthier.emulator import layout
from luthier.emulator.binding.program import Code
from luthier.emulator.inspection.report import explain
from luthier.emulator.running.memory import Arena, Memory
from luthier.emulator.running.worker import Worker, get_field, put_field, table_key
from luthier.isa import Isa
from numpy.typing import NDArray

ROWS = 160
"""VGPRs that a trial fills and looks at; AGPRs as many."""
MODE = 0x3F0
"""To nearest even, denormals kept, DX10_CLAMP and IEEE on."""
MODES = (MODE, 0x100, 0x000, 0x180, 0x1D0, 0x120, 0x040, 0x200)
"""What trials choose from: also without IEEE and DX10_CLAMP; denormals kept or flushed, as sources and as results, of
32 bits and of others apart, so that OMOD counts for none, for some and for all widths."""
VCC, M0, EXEC = 106, 124, 126
LDS_SIZE = 4096
SCRATCH = 256
"""Bytes a lane."""


@dataclass
class State:
    """Registers and memory of one wave."""

    vgprs: NDArray[np.uint32]
    """[ROWS, lanes]"""
    agprs: NDArray[np.uint32]
    sgprs: NDArray[np.uint32]
    """[128] by unit"""
    scc: int = 0
    mode: int = MODE
    memory: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    lds: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    scratch: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    """[lanes, bytes]"""

    def copy(self) -> State:
        return State(
            *(self.vgprs.copy(), self.agprs.copy(), self.sgprs.copy(), self.scc, self.mode),
            *(self.memory.copy(), self.lds.copy(), self.scratch.copy()),
        )

    def wide(self, unit: int, count: int) -> int:
        """SGPRs as one number."""
        return int.from_bytes(self.sgprs[unit : unit + count].tobytes(), "little")

    def put_wide(self, unit: int, count: int, value: int) -> None:
        for index in range(count):
            self.sgprs[unit + index] = value >> (32 * index) & 0xFFFFFFFF


class Bench:
    """Runs instructions one by one, each followed by the end of the program, on states."""

    def __init__(self, isa: Isa, pieces: Sequence[bytes], end: bytes, modes: Sequence[int] = ()) -> None:
        """`modes`: what MODE will be when each piece runs; the default for all if empty."""
        self.isa = isa
        self.lanes = isa.wave_size
        self.memory = Memory()
        self.place = self.memory.allocate(4096)
        program = bytearray()
        starts = []
        for piece in pieces:
            starts.append(len(program))
            program += piece + end
        self.starts = starts
        program += end * 8
        self.code = Code(isa, [(0, bytes(program))])
        self.records = [self.code.record_at(start) for start in starts]
        self._compile_together(modes or [MODE] * len(pieces))
        self.worker = Worker(0)
        self.scratch = Arena(self.lanes * SCRATCH + 64)
        self.launch = Arena(layout.LAUNCH.size)
        self.host = np.zeros(max(self.code.size, 1), np.uint8)
        """What code addresses are taken from."""

    def _compile_together(self, modes: Sequence[int]) -> None:
        for mode in dict.fromkeys(modes):
            records = [record for record, own in zip(self.records, modes, strict=True) if own == mode]
            self.code.ensure(mode & layout.MODE_MASK, *(record for record in records if record is not None))

    def address_of(self, number: int) -> int:
        """The address of a piece, as a wave sees it."""
        return int(self.host.ctypes.data) + self.starts[number]

    def run(self, number: int, before: State) -> State:
        """Execute one of the pieces.

        Raises:
            EmulationError: it faults.
        """
        record = self.records[number]
        assert record is not None
        code, worker, lanes = self.code, self.worker, self.lanes
        mode = before.mode
        code.ensure(mode & layout.MODE_MASK, record)
        worker.prepare(
            code, mode & layout.MODE_MASK, 1, len(before.lds), len(before.lds), self.scratch.address, SCRATCH
        )
        image = before.sgprs.copy()
        rows = np.zeros((512 if before.agprs.any() else ROWS, lanes), np.uint32)
        rows[:ROWS] = before.vgprs
        if len(rows) > ROWS:
            rows[256 : 256 + ROWS] = before.agprs
        lane_image = np.zeros(64 + rows.nbytes, np.uint8)
        lane_image[:8] = np.frombuffer(before.wide(EXEC, 2).to_bytes(8, "little"), np.uint8)
        lane_image[64:] = rows.view(np.uint8).ravel()
        lds = before.lds if len(before.lds) else np.zeros(1, np.uint8)
        self.place.view()[: len(before.memory)] = before.memory
        if before.scratch.size:
            self._scratch()[:] = before.scratch
        sink = layout.WAVE["sink"]
        has_agprs = self.isa.target.target.has_agprs
        fields = {
            "next_group": 0, "group_count": 1, "abort": 0, "quantum": 1 << 20, "step_limit": 64,
            "grid_x": 1, "grid_y": 1, "grid_z": 1, "sgpr_image": image.ctypes.data,
            "vgpr_bytes": 256 * 4 * lanes, "agpr_bytes": 256 * 4 * lanes if has_agprs else 0,
            "agprs": layout.VECTORS + 256 * 4 * lanes, "lane_images": lane_image.ctypes.data,
            "lane_image_size": rows.nbytes, "group_id_x": sink, "group_id_y": sink, "group_id_z": sink,
            "group_info": sink, "scratch_offset": sink, "wave_id": sink, "mode": mode,
            "scratch_base": self.scratch.address, "scc": before.scc,
            "lds_image": lds.ctypes.data if len(before.lds) else 0, "entry": record * layout.RECORD.size,
        }  # fmt: skip
        for name, value in fields.items():
            put_field(self.launch.array, layout.LAUNCH, name, value)
        table, _ = self.memory.table()
        worker.context(
            launch=self.launch.address,
            ranges=table.ctypes.data,
            range_count=len(table),
            code_base=self.host.ctypes.data,
            code_size=code.size,
            code_index=code.index.ctypes.data,
            resume=0,
        )
        while (reason := worker.run()) != layout.DONE:
            wave = worker.current()
            if reason == layout.UNBOUND:
                code.ensure(table_key(wave), worker.record_of(wave))
                worker.sync(table_key(wave))
            elif reason == layout.MODE:
                worker.switch_mode(wave)
            else:
                raise explain(self.memory, "trial", code, worker, reason)
        return self._after(before)

    def _scratch(self) -> NDArray[np.uint8]:
        return self.scratch.array[: self.lanes * SCRATCH].reshape(self.lanes, SCRATCH)

    def _after(self, before: State) -> State:
        wave = self.worker.wave(0)
        row = 4 * self.lanes
        start = layout.VECTORS

        def vectors(first: int) -> NDArray[Any]:
            return wave[first : first + ROWS * row].view(np.uint32).reshape(ROWS, self.lanes).copy()

        agprs = vectors(start + 256 * row) if self.isa.target.target.has_agprs else before.agprs.copy()
        return State(
            vectors(start),
            agprs,
            wave[:512].view(np.uint32).copy(),
            get_field(wave, layout.WAVE, "scc"),
            get_field(wave, layout.WAVE, "mode"),
            self.place.view()[: len(before.memory)].copy(),
            self.worker.lds()[: len(before.lds)].copy(),
            self._scratch().copy() if before.scratch.size else before.scratch,
        )
