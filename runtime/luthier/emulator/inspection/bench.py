"""Execution of single operations: assemble a few instructions, run one wave with given registers, return its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.uses import uses_of
from luthier.emulator.running.execution import execute
from luthier.emulator.running.executor import Executor
from luthier.emulator.running.memory import AllocationTable, Arena
from luthier.emulator.running.plan import code_plan
from luthier.emulator.running.registers import WaveRegisters
from luthier.emulator.running.worker import worker_at
from luthier.errors import DecodeError
from luthier.isa import Isa
from luthier.isa.registers import EXEC_HI
from luthier.wire.messages import Sighting

DEFAULT_MODE = 0x3F0
"""Round to nearest even, denormals kept, DX10_CLAMP and IEEE on."""


class WaveState(WaveRegisters, frozen=True):
    """Registers of a wave that ended."""

    lds: NDArray[np.uint8]
    scratch: NDArray[np.uint8]
    """[lanes, bytes]"""
    counts: NDArray[np.uint64]
    """Executions of each instruction."""
    sightings: tuple[Sighting, ...] = ()
    """Exceptional floats that instructions produced or passed on; decisions by undefined values."""

    @property
    def undefined(self) -> WaveRegisters:
        """Return the registers' undefined bits, if undefined values were tracked."""
        shadow = self.memory[layout.wave_stride(self.wave_size) :]
        return WaveRegisters(shadow, self.wave_size, self.vgprs)


class Bench:
    """Runs a program on one wave whose whole state is given.

    Args:
        program: machine code, at address 0.
        memory: allocations that the wave may access.
        scratch: bytes of scratch per lane.
    """

    def __init__(self, isa: Isa, program: bytes, memory: AllocationTable | None = None, scratch: int = 0) -> None:
        self.code = DecodedCode(isa, [(0, program)])
        self._memory = memory or AllocationTable()
        self._executor = Executor(0)
        self._stack = Arena(isa.wave_size * scratch + 64)
        self._host = np.zeros(max(self.code.size, 1), np.uint8)
        self.scratch: NDArray[np.uint8] = self._stack.array[: isa.wave_size * scratch].reshape(isa.wave_size, scratch)
        """[lanes, bytes]; kept between runs."""

    @property
    def code_base(self) -> int:
        """Return the address of the program for the wave."""
        return int(self._host.ctypes.data)

    def run(
        self,
        sgprs: NDArray[np.uint32],
        vectors: NDArray[np.uint32],
        exec: int,
        *,
        entry: int = 0,
        mode: int = DEFAULT_MODE,
        scc: int = 0,
        lds: bytes = b"",
        step_limit: int = 1 << 14,
        floats: int = 0,
        undefined: int = 0,
    ) -> WaveState:
        """Run from the record `entry` to the end.

        Args:
            sgprs: 128, by unit: 106 is VCC, 124 M0.
            vectors: [registers, lanes]: VGPRs; AGPRs from row 256 on.
            lds: contents of LDS, and so its size.
            step_limit: quanta of backward branches.
            floats: kinds of exceptional floats to look for, such as `layout.FLOAT_NAN`.
            undefined: track undefined values: bits such as `layout.UNWRITTEN_VALUES` (registers that are not given,
                VCC, M0, scratch).

        Raises:
            EmulationError: the wave faulted.
        """
        code, isa = self.code, self.code.isa
        image = np.zeros(64 + vectors.nbytes, np.uint8)
        image[:8] = np.frombuffer(exec.to_bytes(8, "little"), np.uint8)
        image[64:] = vectors.view(np.uint8).ravel()
        lds_image = np.frombuffer(lds or b"\0", np.uint8)
        dispatch = {
            "code": self.code_base,
            **dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1),
            "lds_size": len(lds),
            "scc": scc,
            "scratch": self._stack.address,
            "scratch_lane": self.scratch.shape[1],
            "sgprs": sgprs.ctypes.data,
            "images": image.ctypes.data,
            "image_size": image.nbytes,
            "lds_image": lds_image.ctypes.data if lds else 0,
        }
        plan = code_plan(code, entry, mode, isa.target.target) | {"lds_limit": len(lds)}
        observed = layout.OBSERVE_FLOATS | layout.OBSERVE_FLOW if floats else 0
        observed |= layout.OBSERVE_UNDEFINED if undefined & layout.UNWRITTEN_VALUES else 0
        observed |= layout.OBSERVE_LANES if undefined & layout.LANE_VALUES else 0
        if observed:
            code.floats, code.undefined = floats, undefined
            plan |= {"uses": uses_of(code)}
            self._executor.forget()
        outcome = execute(
            *(self._executor, self._memory, code, plan, dispatch, "assembly"),
            step_limit=step_limit,
            stepped=True,
            observed=observed,
        )
        if outcome.fault is not None:
            raise outcome.fault
        worker = worker_at(code, *self._executor.own())
        return WaveState(
            memory=worker.wave(0).copy(),
            wave_size=isa.wave_size,
            vgprs=isa.target.target.addressable_vgprs,
            lds=worker.lds().copy(),
            scratch=self.scratch.copy(),
            counts=outcome.counts[:-1],
            sightings=tuple(self._executor.sightings()) if observed else (),
        )


def run_assembly(
    target: str,
    source: str | bytes,
    vgprs: Mapping[int, Any] | None = None,
    sgprs: Mapping[int, int] | None = None,
    *,
    exec: int | None = None,
    wave_size: int | None = None,
    mode: int = DEFAULT_MODE,
    scc: int = 0,
    lds: bytes | int = 0,
    scratch: int = 0,
    memory: AllocationTable | None = None,
    floats: int = 0,
    undefined: int = 0,
) -> WaveState:
    """Run `source` (assembly or machine code; `s_endpgm` is appended) on one wave.

    Args:
        vgprs: by register index, an array with one value per lane (64-bit values fill two registers), or one number
            for all lanes.
        sgprs: by register index, a number of 32 bits, or of 64 if it needs them; VCC and M0 have their unit numbers
            (`luthier.isa.registers`).
        lds: contents of LDS, or its size.
        scratch: bytes of scratch per lane.
        memory: allocations that the wave may access.
        floats: kinds of exceptional floats to look for, such as `layout.FLOAT_NAN`.
        undefined: track undefined values, as for `AssemblyBench.run`.

    Raises:
        EmulationError: the wave faulted.
    """
    isa = Isa.of(target, wave_size)
    image = np.zeros(EXEC_HI + 1, np.uint32)
    for index, value in (sgprs or {}).items():
        words = 2 if value >> 32 not in (0, -1) or value >= 1 << 32 else 1
        for part in range(words):
            image[index + part] = value >> (32 * part) & 0xFFFFFFFF
    bench = Bench(isa, _code_of(isa, source), memory, scratch)
    mask = (1 << isa.wave_size) - 1 if exec is None else exec
    rows = _rows(vgprs or {}, isa.wave_size)
    return bench.run(image, rows, mask, mode=mode, scc=scc, lds=bytes(lds), floats=floats, undefined=undefined)


def _code_of(isa: Isa, source: str | bytes) -> bytes:
    if isinstance(source, bytes):
        return source + assemble(isa, "s_endpgm\n")
    return assemble(isa, source + "\ns_endpgm\n")


def assemble(isa: Isa, source: str) -> bytes:
    """Return the machine code of a source whose only symbols are branch labels.

    Raises:
        DecodeError: it does not assemble, or uses another symbol.
    """
    assembly = isa.assemble(source)
    code = bytearray(assembly.instructions.code)
    places = [*assembly.instructions.offset.tolist(), len(code)]
    for fixup in assembly.fixups:
        if fixup.kind != "sopp_branch" or fixup.symbol not in assembly.labels:
            raise DecodeError(f"symbol {fixup.symbol!r} is not a label that a branch uses")
        branch = places[fixup.instruction]
        distance = (places[assembly.labels[fixup.symbol]] - branch - 4) // 4
        code[branch : branch + 2] = (distance & 0xFFFF).to_bytes(2, "little")
    return bytes(code)


def _rows(vgprs: Mapping[int, Any], lanes: int) -> NDArray[np.uint32]:
    """Return the rows of the VGPR file from v0 up to the highest given."""
    given: dict[int, NDArray[np.uint32]] = {}
    for index, value in vgprs.items():
        array = np.asarray(value)
        if array.ndim == 0:
            array = (
                np.full(lanes, value, np.uint32) if not isinstance(value, float) else np.full(lanes, value, np.float32)
            )
        if array.shape != (lanes,):
            raise ValueError(f"v{index} must have shape ({lanes},), not {array.shape}")
        if array.dtype.itemsize == 8:
            pairs = np.ascontiguousarray(array).view(np.uint32).reshape(lanes, 2)
            given[index], given[index + 1] = pairs[:, 0].copy(), pairs[:, 1].copy()
        elif array.dtype.itemsize == 4:
            given[index] = np.ascontiguousarray(array).view(np.uint32)
        else:
            given[index] = array.view(f"u{array.dtype.itemsize}").astype(np.uint32)
    rows = np.zeros((max(given, default=-1) + 1, lanes), np.uint32)
    for index, row in given.items():
        rows[index] = row
    return rows
