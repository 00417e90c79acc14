"""The processes of a program under tools, and the memory that they share with the service.

That memory belongs to the service as well as to the process, so what was counted is there whatever becomes of it.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from luthier.channels import Ring, describe
from luthier.channels.layout import CONTROL
from luthier.counts import MissingSums
from luthier.module import LoadedModule
from luthier.objects import CodeObject, Kernel
from luthier.observation import Launch, LiveChannel, LiveVariable
from luthier.run.loaded import LoadedCompanion
from luthier.run.patching import Patched
from luthier.run.shared_memory import SharedMemory, structure_type

if TYPE_CHECKING:
    from luthier.patch.companion import Companion, VariableBlock
    from luthier.run.events import EventLog

ROWS = 1 << 16
"""Kernels of a process that are counted; those beyond run uncounted."""
RECORDS = 1 << 25
"""Launches of a process that are recorded one by one, where they are recorded. Their memory is there while they wait to
be taken."""
_RING_ALIGNMENT = mmap.PAGESIZE
HEAD, ROW, RECORD = (structure_type(f"LEDGER_{name}") for name in ("HEAD", "ROW", "RECORD"))
NEVER = (1 << 64) - 1
"""`end` of a launch whose times on the device will not be known."""


@dataclass(frozen=True)
class Block:
    """A block of variables on one device."""

    block: VariableBlock
    memory: SharedMemory
    channels: tuple[LiveChannel, ...]
    rings: tuple[range, ...]
    """Bytes of the memory that the channels' rings are in."""
    sums: Mapping[str, MissingSums]
    """What variables lack, by their symbols."""


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

    def waves(self, row: np.void) -> int:
        """How many waves its patched launches had.

        Args:
            row: its `ROW`.
        """
        return int(row["waves"][int(self.kernel.wave_size == 64)])


@dataclass
class Session:
    """One process of the program."""

    pid: int
    command: str
    records: int = 0
    """Launches that are recorded one by one."""
    about: dict[str, int | None] = field(default_factory=dict)
    """Of the process: its parent, its rank under MPI."""
    taken: int = 0
    """Records that were taken."""
    objects: list[CodeObject] = field(default_factory=list)
    kernels: list[LaunchedKernel] = field(default_factory=list)
    blocks: dict[tuple[int, str], Block] = field(default_factory=dict)
    """By device and symbol."""
    companions: dict[tuple[int, int], LoadedCompanion] = field(default_factory=dict)
    """By device and what is added to their addresses."""
    running: dict[int, Launch] = field(default_factory=dict)
    """By device, where tools are told of launches."""
    events: EventLog | None = None
    """Where tools are told of calls of API functions."""
    ledger: SharedMemory = field(init=False)

    def __post_init__(self) -> None:
        size = HEAD.itemsize + ROWS * ROW.itemsize + self.records * RECORD.itemsize
        self.ledger = SharedMemory("luthier-ledger", size)

    @property
    def counts(self) -> NDArray[np.void]:
        """A `ROW` for each of `kernels`."""
        return self.ledger.bytes[HEAD.itemsize :][: ROWS * ROW.itemsize].view(ROW)[: len(self.kernels)]

    @property
    def launches(self) -> int:
        """How many there were."""
        return int(self.ledger.bytes[: HEAD.itemsize].view(HEAD)["records"][0])

    def take_records(self, most: int, *, ended: bool) -> NDArray[np.void]:
        """A `RECORD` for each of the next launches, in their order; their memory is given back.

        Args:
            most: how many at most.
            ended: the process has ended; else it stops where one is not complete.
        """
        start = HEAD.itemsize + ROWS * ROW.itemsize
        count = min(self.launches, self.records) - self.taken
        place = start + self.taken * RECORD.itemsize
        found = self.ledger.bytes[place : place + min(count, most) * RECORD.itemsize].view(RECORD)
        if not ended:
            complete = (found["time"] != 0) & (found["end"] != 0)
            found = found if complete.all() else found[: complete.argmin()]
        found = found.copy()
        first_page = place // mmap.PAGESIZE * mmap.PAGESIZE  # begun with records that were taken before
        self.ledger.give_back(max(first_page, start), place + found.nbytes)
        self.taken += len(found)
        return found

    def needed_blocks(self) -> list[VariableBlock]:
        """Those that patched kernels of this process refer to."""
        companions = [kernel.patched.companion for kernel in self.kernels]
        return [block for companion in companions if companion is not None for block in companion.blocks]

    def add_block(self, gpu: int, block: VariableBlock) -> tuple[Block, bool]:
        """Memory for a block on a device, with its variables' initial values and its channels' rings: the same one each
        time, and whether it was there before."""
        found = self.blocks.get((gpu, block.symbol))
        if found is not None:
            return found, True
        variables = {name: block.module.variables[name] for name in block.offsets}
        described = {name: describe(one.name, one.storage.initial) for name, one in variables.items()}
        places, size = [], block.size
        for name, description in described.items():
            if description is not None:
                size = -(-size // _RING_ALIGNMENT) * _RING_ALIGNMENT
                places.append((name, description, range(size, size + description.ring_size)))
                size += description.ring_size
        memory = SharedMemory("luthier-variables", max(size, 1))
        for name, variable in variables.items():
            start = block.offsets[name]
            memory.bytes[start : start + variable.size] = np.frombuffer(variable.storage.initial, np.uint8)
        channels = []
        for name, description, place in places:
            start = block.offsets[name]
            ring = Ring(description, memory.bytes[start:], memory.bytes[place.start : place.stop], place.start - start)
            channels.append(LiveChannel(ring, self.pid, gpu))
        sums = {name: MissingSums(partial(self._counted, gpu, block.module, name)) for name in variables}
        made = Block(block, memory, tuple(channels), tuple(place for *_, place in places), sums)
        self.blocks[gpu, block.symbol] = made
        return made, False

    def channels(self) -> list[LiveChannel]:
        """Every channel on every device."""
        return [channel for block in list(self.blocks.values()) for channel in block.channels]

    def forget_rings(self) -> None:
        """Give back the memory of records, which are all taken."""
        for block in list(self.blocks.values()):
            for place in block.rings:
                block.memory.give_back(place.start + CONTROL.itemsize, place.stop)

    def string_at(self, gpu: int, address: int) -> bytes | None:
        """A string among the variables of a device."""
        for (number, symbol), block in list(self.blocks.items()):
            for companion in list(self.companions.values()):
                start = companion.symbols.get(symbol)
                if number == gpu and start is not None and 0 <= address - start < block.block.size:
                    data = block.memory.bytes[address - start : block.block.size].tobytes()
                    return data[: data.index(0)] if 0 in data else None
        return None

    def variables(self) -> list[tuple[VariableBlock, LiveVariable]]:
        """Every variable on every device, with its block: not channels, and nothing that is constant."""
        return [
            (block.block, self._variable(gpu, block, name))
            for (gpu, _), block in list(self.blocks.items())
            for name in block.block.offsets
            if block.block.module.variables[name].is_state
        ]

    def _variable(self, gpu: int, block: Block, name: str) -> LiveVariable:
        variable, offset = block.block.module.variables[name], block.block.offsets[name]
        place = block.memory.bytes[offset : offset + variable.size]
        return LiveVariable(variable, self.pid, gpu, place, block.sums[name])

    def _counted(self, gpu: int, module: LoadedModule, name: str) -> dict[int, int]:
        """What the kernels of a device have counted for a variable that has not been added to it: element -> value."""
        waves: dict[int, int] = {}
        counted: dict[int, Companion] = {}
        rows = self.counts
        for number, kernel in enumerate(self.kernels[: len(rows)]):
            companion = kernel.patched.companion
            if kernel.gpu != gpu or companion is None or companion.counters is None or not companion.counters.sums:
                continue
            counted[id(companion)] = companion
            waves[id(companion)] = waves.get(id(companion), 0) + kernel.waves(rows[number])
        total: dict[int, int] = {}
        for number, companion in counted.items():
            counters = companion.counters
            assert counters is not None
            memories = [
                block.memory.bytes[block.block.offsets[counters.symbol] :][: counters.size].tobytes()
                for needed in companion.blocks
                if counters.symbol in needed.offsets and (block := self.blocks.get((gpu, needed.symbol))) is not None
            ]
            for index, value in counters.missing(module, name, memories, waves[number]).items():
                total[index] = total.get(index, 0) + value
        return total
