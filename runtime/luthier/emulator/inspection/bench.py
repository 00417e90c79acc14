"""A workbench for single operations: assemble a few instructions, run one wave over given registers, look at the
result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import Code
from luthier.emulator.inspection.registers import WaveRegisters
from luthier.emulator.inspection.report import explain
from luthier.emulator.running.memory import Arena, Memory
from luthier.emulator.running.worker import Worker, put_field, table_key
from luthier.errors import DecodeError
from luthier.isa import Isa

DEFAULT_MODE = 0x3F0
"""Round to nearest even, denormals kept, DX10_CLAMP and IEEE on."""


@dataclass(frozen=True)
class WaveState(WaveRegisters):
    """Registers of a wave that ended."""

    lds: NDArray[np.uint8]
    counts: NDArray[np.uint64]
    """Executions of each instruction."""


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
    memory: Memory | None = None,
) -> WaveState:
    """Run `source` (assembly or machine code; `s_endpgm` is appended) on one wave.

    Args:
        vgprs: register index to an array with one value a lane (64-bit values fill two registers), or one number for
        all. sgprs: register index to a number of 32 bits, or of 64 if it needs them; 106 is VCC, 124 M0.
        lds: contents of LDS, or its size.
        scratch: bytes of scratch a lane.
        memory: allocations the wave may touch; its addresses go into registers.

    Raises:
        EmulationError: the wave faulted.
    """
    isa = Isa.of(target, wave_size)
    size = isa.wave_size
    code = Code(isa, [(0, _code_of(isa, source))])
    code.ensure(layout.mode_key(mode), 0)
    space = memory or Memory()
    table, _ = space.table()
    contents = bytes(lds)
    stack = Arena(size * scratch + 64)
    worker = Worker(0)
    worker.prepare(code, layout.mode_key(mode), 1, len(contents), len(contents), stack.address, scratch)
    image = np.zeros(128, np.uint32)
    for index, value in (sgprs or {}).items():
        words = 2 if value >> 32 not in (0, -1) or value >= 1 << 32 else 1
        for part in range(words):
            image[index + part] = value >> (32 * part) & 0xFFFFFFFF
    rows = _rows(vgprs or {}, size)
    lanes = np.zeros(64 + rows.nbytes, np.uint8)
    mask = (1 << size) - 1 if exec is None else exec
    lanes[:8] = np.frombuffer(mask.to_bytes(8, "little"), np.uint8)
    lanes[64:] = rows.view(np.uint8).ravel()
    image_of_lds = np.frombuffer(contents or b"\0", np.uint8)
    sink = layout.WAVE["sink"]
    launch = Arena(layout.LAUNCH.size)
    fields = {
        "group_count": 1,
        "quantum": 1 << 20,
        "step_limit": 1 << 26,
        "grid_x": 1,
        "grid_y": 1,
        "grid_z": 1,
        "sgpr_image": image.ctypes.data,
        "vgpr_bytes": 256 * 4 * size,
        "agpr_bytes": 256 * 4 * size if isa.target.target.has_agprs else 0,
        "agprs": layout.VECTORS + 256 * 4 * size,
        "lane_images": lanes.ctypes.data,
        "lane_image_size": rows.nbytes,
        "group_id_x": sink,
        "group_id_y": sink,
        "group_id_z": sink,
        "group_info": sink,
        "scratch_offset": sink,
        "wave_id": sink,
        "mode": mode,
        "scratch_base": stack.address,
        "scc": scc,
        "lds_image": image_of_lds.ctypes.data if contents else 0,
    }
    for name, number in fields.items():
        put_field(launch.array, layout.LAUNCH, name, number)
    host = np.zeros(max(code.size, 1), np.uint8)  # what code addresses are taken from; never read
    worker.context(
        launch=launch.address,
        ranges=table.ctypes.data,
        range_count=len(table),
        code_base=host.ctypes.data,
        code_size=code.size,
        code_index=code.index.ctypes.data,
        resume=0,
    )
    while True:
        reason = worker.run()
        if reason == layout.DONE:
            break
        if reason == layout.UNBOUND:
            key = table_key(worker.current())
            code.ensure(key, worker.record_of(worker.current()))
            worker.sync(key)
        elif reason == layout.MODE:
            worker.switch_mode(worker.current())
        elif reason == layout.MESSAGE:
            continue
        else:
            raise explain(space, "assembly", code, worker, reason)
    counts, _ = worker.counts()
    return WaveState(worker.wave(0).copy(), size, worker.lds()[: len(contents)].copy(), counts[:-1])


def _code_of(isa: Isa, source: str | bytes) -> bytes:
    if isinstance(source, bytes):
        return source + assemble(isa, "s_endpgm\n")
    return assemble(isa, source + "\ns_endpgm\n")


def assemble(isa: Isa, source: str) -> bytes:
    """Machine code of a source whose only symbols are labels of branches.

    Raises:
        DecodeError: it does not assemble, or refers to something else.
    """
    assembly = isa.assemble(source)
    code = bytearray(assembly.instructions.code)
    places = [*assembly.instructions.offset.tolist(), len(code)]
    for fixup in assembly.fixups:
        if fixup.kind != "sopp_branch" or fixup.symbol not in assembly.labels:
            raise DecodeError(f"symbol {fixup.symbol!r} is no branch target here")
        here = places[fixup.instruction]
        distance = (places[assembly.labels[fixup.symbol]] - here - 4) // 4
        code[here : here + 2] = (distance & 0xFFFF).to_bytes(2, "little")
    return bytes(code)


def _rows(vgprs: Mapping[int, Any], lanes: int) -> NDArray[np.uint32]:
    """Rows of the VGPR file from v0 up to the highest given."""
    given: dict[int, NDArray[np.uint32]] = {}
    for index, value in vgprs.items():
        array = np.asarray(value)
        if array.ndim == 0:
            array = (
                np.full(lanes, value, np.uint32) if not isinstance(value, float) else np.full(lanes, value, np.float32)
            )
        if array.shape != (lanes,):
            raise ValueError(f"v{index} needs {lanes} values, not {array.shape}")
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
