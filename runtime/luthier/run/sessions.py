"""The processes of a program under tools, and the memory that they share with the service.

The service keeps that memory, so counts survive the end of a process.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.channels import Ring, describe
from luthier.channels.layout import RING
from luthier.module import LoadedModule
from luthier.objects import CodeObject, Kernel
from luthier.run.host_stacks import HostStacks
from luthier.run.loaded import LoadedCompanion
from luthier.run.patching import Patched
from luthier.run.shared_memory import SharedMemory
from luthier.tool.counts import MissingSums
from luthier.tool.observation import Launch, LiveChannel, LiveVariable, Value
from luthier.wire import memory
from luthier.wire.structures import ProtocolError

if TYPE_CHECKING:
    from luthier.patch.output.companion import Companion, VariableBlock
    from luthier.run.events import EventLog

ROWS = 1 << 16
"""Maximum number of kernels of a process that are counted; others run uncounted."""
RECORDS = 1 << 25
"""Maximum number of launches of a process that are recorded one by one. Their memory is allocated until they are
taken."""
_RING_ALIGNMENT = mmap.PAGESIZE
_MOST_LAUNCHES = (1 << 63) - 1
HEAD, ROW, RECORD = (one.dtype for one in (memory.LEDGER_HEAD, memory.LEDGER_ROW, memory.LEDGER_RECORD))


class SessionVariables(Struct, frozen=True):
    """A block of variables on one device."""

    block: VariableBlock
    memory: SharedMemory
    channels: tuple[LiveChannel, ...]
    rings: tuple[range, ...]
    """Byte ranges of the channels' rings in the memory."""
    sums: Mapping[str, MissingSums]
    """Sums that variables lack, by symbol."""
    initial: dict[str, bytes]
    """Initial values that differ from those in the source, by symbol."""


class SessionKernel(Struct, frozen=True):
    """A kernel of one code object that a process launched on one device."""

    kernel: Kernel
    object: CodeObject
    gpu: int
    patched: Patched

    @property
    def name(self) -> str:
        """Return the mangled name."""
        return self.kernel.name

    def waves(self, row: np.void) -> int:
        """Return the number of waves of its patched launches; `row`: its `ROW`."""
        return int(row["waves"][int(self.kernel.wave_size == 64)])


@dataclass
class Session:
    """A process of the program."""

    pid: int
    command: str
    records: int = 0
    """Number of launches that are recorded one by one."""
    about: dict[str, int | None] = field(default_factory=dict)
    """Facts about the process: its parent, its rank under MPI."""
    devices: int | None = None
    """Number of its devices; None if unknown."""
    taken: int = 0
    """Number of records that were taken."""
    objects: list[CodeObject] = field(default_factory=list)
    kernels: list[SessionKernel] = field(default_factory=list)
    blocks: dict[tuple[int, str], SessionVariables] = field(default_factory=dict)
    """By device and symbol."""
    companions: dict[tuple[int, int], LoadedCompanion] = field(default_factory=dict)
    """By device and the offset added to their addresses."""
    running: dict[int, Launch] = field(default_factory=dict)
    """Device -> launch that tools are handling."""
    stacks: HostStacks = field(default_factory=HostStacks)
    """Stacks of the host that launched kernels."""
    events: EventLog | None = None
    """Log that passes calls of API functions to tools."""
    ledger: SharedMemory = field(init=False)
    _head: NDArray[np.void] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        size = HEAD.itemsize + ROWS * ROW.itemsize + self.records * RECORD.itemsize
        self.ledger = SharedMemory("luthier-ledger", size)
        self._head = self.ledger.head(memory.LEDGER_HEAD)

    def check_device(self, gpu: int) -> None:
        """Check the number of a device.

        Raises:
            ProtocolError: the run has no device of that number.
        """
        if self.devices is not None and gpu >= self.devices:
            raise ProtocolError(f"a request names device {gpu}, but there are {self.devices} devices")

    @property
    def counts(self) -> NDArray[np.void]:
        """Return a `ROW` for each of `kernels`."""
        return self.ledger.bytes[HEAD.itemsize :][: ROWS * ROW.itemsize].view(ROW)[: len(self.kernels)]

    @property
    def launches(self) -> int:
        """Return the number of launches."""
        return min(int(self._head["records"][0]), _MOST_LAUNCHES)  # the process may write any value

    def add_launch(self, row: int, launch: Launch, waves: int, time: int) -> None:
        """Record a launch of this process itself, whose device times are unknown.

        Args:
            row: number of its kernel in `kernels`.
            waves: number of its waves.
            time: start, in nanoseconds since 1970.
        """
        counted = self.counts[row]
        counted["launches"] += 1
        if launch.instrumented:
            counted["instrumented"] += 1
            counted["waves"][int(launch.kernel.wave_size == 64)] += waves
        place = self.launches
        self._head["records"][0] = place + 1
        if place < self.records:
            start = HEAD.itemsize + ROWS * ROW.itemsize + place * RECORD.itemsize
            record = self.ledger.bytes[start : start + RECORD.itemsize].view(RECORD)[0]
            for name in ("number", "instrumented", "grid", "block", "group_segment", "private_segment"):
                record[name] = getattr(launch, name)
            record["kernel"], record["time"], record["end"] = row, time, memory.NEVER

    def take_records(self, most: int, *, ended: bool) -> NDArray[np.void]:
        """Return a `RECORD` for each of the next launches, in order, and free their memory.

        Args:
            most: maximum number of records.
            ended: whether the process has ended; otherwise stop at the first incomplete record.
        """
        start = HEAD.itemsize + ROWS * ROW.itemsize
        count = min(self.launches, self.records) - self.taken
        place = start + self.taken * RECORD.itemsize
        records = self.ledger.bytes[place : place + min(count, most) * RECORD.itemsize].view(RECORD)
        if not ended:
            complete = (records["time"] != 0) & (records["end"] != 0)
            records = records if complete.all() else records[: complete.argmin()]
        records = records.copy()
        first_page = place // mmap.PAGESIZE * mmap.PAGESIZE  # shared with records that were taken before
        self.ledger.give_back(max(first_page, start), place + records.nbytes)
        self.taken += len(records)
        return records

    def needed_blocks(self) -> list[VariableBlock]:
        """Return the blocks that patched kernels of this process reference."""
        companions = [kernel.patched.companion for kernel in self.kernels]
        return [block for companion in companions if companion is not None for block in companion.blocks]

    def add_block(self, gpu: int, block: VariableBlock) -> tuple[SessionVariables, bool]:
        """Return the memory of a block on a device, and whether it existed: it is the same each time.

        It contains the variables' initial values and the channels' rings.
        """
        known = self.blocks.get((gpu, block.symbol))
        if known is not None:
            return known, True
        variables = {name: block.module.variables[name] for name in block.offsets}
        described = {name: describe(one.name, one.storage.initial) for name, one in variables.items()}
        places, size = [], block.size
        for name, description in described.items():
            if description is not None:
                size = -(-size // _RING_ALIGNMENT) * _RING_ALIGNMENT
                places.append((name, description, range(size, size + description.ring_size)))
                size += description.ring_size
        shared = SharedMemory("luthier-variables", max(size, 1))
        for name, variable in variables.items():
            start, initial = block.offsets[name], variable.storage.initial.rstrip(b"\0")
            # The memory is zero, and has no pages until it is written.
            shared.bytes[start : start + len(initial)] = np.frombuffer(initial, np.uint8)
        channels = []
        for name, description, place in places:
            start = block.offsets[name]
            ring = Ring(description, shared.bytes[start:], shared.bytes[place.start : place.stop], place.start - start)
            channels.append(LiveChannel(ring, self.pid, gpu))
        sums = {name: MissingSums(partial(self._counted, gpu, block.module, name)) for name in variables}
        made = SessionVariables(block, shared, tuple(channels), tuple(place for *_, place in places), sums, {})
        self.blocks[gpu, block.symbol] = made
        return made, False

    def channels(self) -> list[LiveChannel]:
        """Return every channel on every device."""
        return [channel for block in list(self.blocks.values()) for channel in block.channels]

    def forget_rings(self) -> None:
        """Free the memory of records, which are all taken."""
        for block in list(self.blocks.values()):
            for place in block.rings:
                block.memory.give_back(place.start + RING.itemsize, place.stop)

    def close(self) -> None:
        """Close the memory files after the process has ended."""
        self.ledger.close()
        for block in list(self.blocks.values()):
            block.memory.close()
        if self.events is not None:
            self.events.memory.close()

    def string_at(self, gpu: int, address: int) -> bytes | None:
        """Return a string in the variables of a device; None if there is none."""
        for (number, symbol), block in list(self.blocks.items()):
            for companion in list(self.companions.values()):
                start = companion.symbols.get(symbol)
                if number == gpu and start is not None and 0 <= address - start < block.block.size:
                    data = block.memory.bytes[address - start : block.block.size].tobytes()
                    return data[: data.index(0)] if 0 in data else None
        return None

    def variables(self) -> list[tuple[VariableBlock, LiveVariable]]:
        """Return every variable on every device, with its block, without channels and constants."""
        return [
            (block.block, self._variable(gpu, block, name))
            for (gpu, _), block in list(self.blocks.items())
            for name in block.block.offsets
            if block.block.module.variables[name].is_state
        ]

    def initialise(self, gpu: int, block: SessionVariables, values: Mapping[str, Value]) -> list[str]:
        """Set initial values of variables by name; return the names that the block has.

        Raises:
            DeviceError: a value does not fit its variable.
        """
        known = []
        for symbol in block.block.offsets:
            variable = self._variable(gpu, block, symbol)
            if variable.name in values and block.block.module.variables[symbol].is_state:
                variable.put(values[variable.name])
                block.initial[symbol] = variable.read()
                known.append(variable.name)
        return known

    def _variable(self, gpu: int, block: SessionVariables, name: str) -> LiveVariable:
        variable, offset = block.block.module.variables[name], block.block.offsets[name]
        place = block.memory.bytes[offset : offset + variable.size]
        return LiveVariable(variable, self.pid, gpu, place, block.sums[name], block.initial.get(name))

    def _counted(self, gpu: int, module: LoadedModule, name: str) -> dict[int, int]:
        """Return counts of a variable that kernels of a device did not add to it: element -> value."""
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
