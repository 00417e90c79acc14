"""The processes of a program under tools, and the memory that they share with the service.

That memory belongs to the service as well as to the process, so what was counted is there whatever becomes of it.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from luthier.objects import CodeObject, Kernel
from luthier.observation import Launch, LiveVariable
from luthier.patch.companion import VariableBlock
from luthier.run.loaded import LoadedCompanion
from luthier.run.patching import Patched

ROWS = 1 << 16
"""Kernels of a process that are counted; those beyond run uncounted."""
RECORDS = 1 << 20
"""Launches of a process that are recorded one by one."""
HEAD = np.dtype([("records", "<u8"), ("reserved", "<u8", 7)])
ROW = np.dtype([("launches", "<u8"), ("instrumented", "<u8"), ("reserved", "<u8", 6)])
RECORD = np.dtype(
    [
        *(("time", "<u8"), ("number", "<u8"), ("kernel", "<u4"), ("instrumented", "<u4")),
        *(("grid", "<u4", 3), ("group_segment", "<u4"), ("private_segment", "<u4"), ("block", "<u2", 3)),
        ("reserved", "<u2", 7),
    ]
)
"""These three are `Head`, `Row` and `Record` of ledger.h."""
assert HEAD.itemsize == ROW.itemsize == RECORD.itemsize == 64


class SharedMemory:
    """A file of memory, and its bytes here."""

    def __init__(self, name: str, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(mmap.mmap(self.fd, self.size), np.uint8)


@dataclass(frozen=True)
class LaunchedKernel:
    """A kernel of one code object that a process launched on one device."""

    kernel: Kernel
    object: CodeObject
    gpu: int
    patched: Patched

    @property
    def name(self) -> str:
        """Mangled, as the object's symbol."""
        return self.kernel.name


@dataclass
class Session:
    """One process of the program."""

    pid: int
    command: str
    ledger: SharedMemory = field(
        default_factory=lambda: SharedMemory(
            "luthier-ledger", HEAD.itemsize + ROWS * ROW.itemsize + RECORDS * RECORD.itemsize
        )
    )
    objects: list[CodeObject] = field(default_factory=list)
    kernels: list[LaunchedKernel] = field(default_factory=list)
    blocks: dict[tuple[int, str], tuple[VariableBlock, SharedMemory]] = field(default_factory=dict)
    """By device and symbol."""
    companions: dict[tuple[int, int], LoadedCompanion] = field(default_factory=dict)
    """By device and what is added to their addresses."""
    running: dict[int, Launch] = field(default_factory=dict)
    """By device, where tools are told of launches."""

    @property
    def counts(self) -> NDArray[np.void]:
        """A `ROW` for each of `kernels`."""
        return self.ledger.bytes[HEAD.itemsize :][: ROWS * ROW.itemsize].view(ROW)[: len(self.kernels)]

    @property
    def launches(self) -> NDArray[np.void]:
        """A `RECORD` for each launch, in their order."""
        start = HEAD.itemsize + ROWS * ROW.itemsize
        count = min(int(self.ledger.bytes[: HEAD.itemsize].view(HEAD)["records"][0]), RECORDS)
        return self.ledger.bytes[start : start + count * RECORD.itemsize].view(RECORD)

    @property
    def unrecorded(self) -> int:
        """Launches beyond `RECORDS`."""
        return max(int(self.ledger.bytes[: HEAD.itemsize].view(HEAD)["records"][0]) - RECORDS, 0)

    def needed_blocks(self) -> list[VariableBlock]:
        """Those that patched kernels of this process refer to."""
        companions = [kernel.patched.companion for kernel in self.kernels]
        return [block for companion in companions if companion is not None for block in companion.blocks]

    def add_block(self, gpu: int, block: VariableBlock) -> SharedMemory:
        """Memory for a block on a device, with its variables' initial values; the same one each time."""
        found = self.blocks.get((gpu, block.symbol))
        if found is None:
            memory = SharedMemory("luthier-variables", max(block.size, 1))
            found = self.blocks[gpu, block.symbol] = block, memory
            for name in block.offsets:
                self._variable(gpu, block, memory, name).reset()
        return found[1]

    def variables(self) -> list[tuple[VariableBlock, LiveVariable]]:
        """Every variable on every device, with its block."""
        return [
            (block, self._variable(gpu, block, memory, name))
            for (gpu, _), (block, memory) in list(self.blocks.items())
            for name in block.offsets
        ]

    def _variable(self, gpu: int, block: VariableBlock, memory: SharedMemory, name: str) -> LiveVariable:
        variable, offset = block.module.variables[name], block.offsets[name]
        return LiveVariable(variable, self.pid, gpu, memory.bytes[offset : offset + variable.size])
