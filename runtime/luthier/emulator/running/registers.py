"""Registers of a wave."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.running.worker import get_field, poke
from luthier.errors import DeviceError
from luthier.isa.registers import EXEC_HI, EXEC_LO, M0, SGPRS, VCC_LO


def _check(index: int, count: int, limit: int) -> None:
    if index < 0 or count < 1 or index + count > limit:
        raise DeviceError(f"{count} registers from number {index} are not within 0 to {limit - 1}")


class WaveRegisters(Struct, frozen=True):
    """Registers in the memory of a wave; those of a stopped wave may be changed."""

    memory: NDArray[np.uint8]
    wave_size: int
    vgprs: int
    """VGPRs that instructions of the target can name."""

    def vgpr(self, index: int, count: int = 1, dtype: Any = np.uint32) -> NDArray[Any]:
        """Return VGPRs from `index`: one value of `dtype` per lane; [count, lanes] if `count` is not 1.

        64-bit types take two registers.
        """
        return self._vectors(layout.VECTORS, self.vgprs, index, count, dtype)

    def agpr(self, index: int, count: int = 1, dtype: Any = np.uint32) -> NDArray[Any]:
        """Return AGPRs from `index`, like `vgpr`."""
        return self._vectors(layout.agprs(self.wave_size), layout.VECTOR_ROWS, index, count, dtype)

    def _vectors(self, base: int, limit: int, index: int, count: int, dtype: Any) -> NDArray[Any]:
        kind = np.dtype(dtype)
        row = 4 * self.wave_size
        units = count * max(1, kind.itemsize // 4)
        _check(index, units, limit)
        raw = (
            self.memory[base + index * row : base + (index + units) * row]
            .view(np.uint32)
            .reshape(units, self.wave_size)
        )
        if kind.itemsize == 8:
            pairs = np.stack([raw[0::2], raw[1::2]], axis=-1)
            values = np.ascontiguousarray(pairs).view(kind)[..., 0]
        elif kind.itemsize == 4:
            values = raw.view(kind)
        else:
            values = raw.view(kind).reshape(units, self.wave_size, -1)[..., 0]
        chosen: NDArray[Any] = values[0] if count == 1 else values
        return chosen.copy()

    def set_vgpr(self, index: int, values: Any) -> None:
        """Set a VGPR to one number, or to one number per lane."""
        _check(index, 1, self.vgprs)
        row = 4 * self.wave_size
        place = layout.VECTORS + index * row
        self.memory[place : place + row].view(np.uint32)[:] = values

    def sgpr(self, index: int, count: int = 1) -> int:
        """Return SGPRs from `index` as one number; VCC, M0 and EXEC by unit number (`luthier.isa.registers`)."""
        _check(index, count, EXEC_HI + 1)
        return int.from_bytes(self.memory[4 * index : 4 * (index + count)].tobytes(), "little")

    def set_sgpr(self, index: int, value: int, count: int = 1) -> None:
        """Set SGPRs from `index`."""
        _check(index, count, EXEC_HI + 1)
        poke(self.memory, 4 * index, 4 * count, value)

    @property
    def vcc(self) -> int:
        """Return VCC, as wide as the wave."""
        return self.sgpr(VCC_LO, self.wave_size // 32)

    @property
    def exec(self) -> int:
        """Return EXEC, as wide as the wave."""
        return self.sgpr(EXEC_LO, self.wave_size // 32)

    @property
    def m0(self) -> int:
        """Return the register M0."""
        return self.sgpr(M0)

    @property
    def scc(self) -> int:
        """Return the condition code, 0 or 1."""
        return get_field(self.memory, layout.WAVE, "scc")

    @property
    def mode(self) -> int:
        """Return the register MODE."""
        return get_field(self.memory, layout.WAVE, "mode")

    def dump(self, sgprs: int = len(SGPRS), vgprs: int = 0) -> str:
        """Return the registers as text: non-zero scalars, and the first `vgprs` VGPRs by lane."""
        lines = [f"EXEC {self.exec:#x}  VCC {self.vcc:#x}  SCC {self.scc}  M0 {self.m0:#x}  MODE {self.mode:#x}"]
        scalars = [f"s{index}={self.sgpr(index):#x}" for index in range(sgprs) if self.sgpr(index)]
        lines += [" ".join(scalars[start : start + 8]) for start in range(0, len(scalars), 8)]
        for index in range(vgprs):
            lines.append(f"v{index}: " + " ".join(f"{value:x}" for value in self.vgpr(index)))
        return "\n".join(lines)
