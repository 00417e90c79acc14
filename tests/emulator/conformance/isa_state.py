"""A wave's registers before and after an instruction, and a bench that runs single instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from luthier.emulator import layout
from luthier.emulator.inspection.bench import Bench as AnyBench
from luthier.emulator.running.memory import AllocationTable
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

    def __init__(
        self, isa: Isa, pieces: Sequence[bytes], end: bytes, modes: Sequence[int] = (), *, undefined: bool = False
    ) -> None:
        """`modes`: what MODE will be when each piece runs; the default for all if empty. `undefined`: by code that
        follows undefined values."""
        self.isa = isa
        self.undefined = undefined
        self.lanes = isa.wave_size
        self.memory = AllocationTable()
        self.place = self.memory.allocate(4096)
        program = bytearray()
        self.starts = []
        for piece in pieces:
            self.starts.append(len(program))
            program += piece + end
        self.bench = AnyBench(isa, bytes(program + end * 8), self.memory, SCRATCH)
        self.records = [self.bench.code.record_at(start) for start in self.starts]
        self._compile_together(modes or [MODE] * len(pieces))

    def _compile_together(self, modes: Sequence[int]) -> None:
        for mode in dict.fromkeys(modes):
            records = [record for record, own in zip(self.records, modes, strict=True) if own == mode]
            self.bench.code.ensure(mode & layout.MODE_MASK, *(record for record in records if record is not None))

    def address_of(self, number: int) -> int:
        """The address of a piece, as a wave sees it."""
        return self.bench.code_base + self.starts[number]

    def run(self, number: int, before: State) -> State:
        """Execute one of the pieces.

        Raises:
            EmulationError: it faults.
        """
        record = self.records[number]
        assert record is not None
        rows = np.zeros((512 if before.agprs.any() else ROWS, self.lanes), np.uint32)
        rows[:ROWS] = before.vgprs
        if len(rows) > ROWS:
            rows[256 : 256 + ROWS] = before.agprs
        self.place.view()[: len(before.memory)] = before.memory
        if before.scratch.size:
            self.bench.scratch[:] = before.scratch
        after = self.bench.run(
            before.sgprs.copy(),
            rows,
            before.wide(EXEC, 2),
            entry=record,
            mode=before.mode,
            scc=before.scc,
            lds=before.lds.tobytes(),
            step_limit=1,
            undefined=self.undefined,
        )
        return State(
            after.vgpr(0, ROWS),
            after.agpr(0, ROWS) if self.isa.target.target.has_agprs else before.agprs.copy(),
            after.memory[:512].view(np.uint32),
            after.scc,
            after.mode,
            self.place.view()[: len(before.memory)].copy(),
            after.lds,
            after.scratch if before.scratch.size else before.scratch,
        )
