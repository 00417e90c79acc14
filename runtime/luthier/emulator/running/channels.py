"""Channels of a loaded module: their rings and records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.channels import Channel, ChannelDrain, Printer, Ring, describe
from luthier.emulator.running.loader import LoadedImage
from luthier.emulator.running.memory import AllocationTable, DeviceAllocation
from luthier.module.embedded import plain_name
from luthier.objects import CodeObject
from luthier.objects import elf as E
from luthier.terminal import say_raw
from luthier.wire.channels import MAGIC, Kind

LONGEST_STRING = 1 << 16
"""Bytes of a format string that are read."""


class DeviceChannel(Channel):
    """One channel of a loaded module.

    While a kernel runs, a thread takes its records in batches and passes them to the listener. Without a listener,
    records are kept for `records`, and lines of `luthier::printf` go to standard output.
    """

    def __init__(self, ring: Ring, memory: AllocationTable, allocation: DeviceAllocation) -> None:
        super().__init__(ring)
        self._memory, self._allocation = memory, allocation
        self._kept: list[NDArray[Any]] = []
        self._default: Callable[[NDArray[Any]], object] = self._kept.append
        if ring.description.kind is Kind.LINES:
            self._default = Printer(self._string, lambda text: say_raw(text, end=""))
        self._listener: Callable[[NDArray[Any]], object] | None = None

    def records(self) -> NDArray[Any]:
        """Return the records that launches have pushed since the last call, in the order of tickets."""
        kept, self._kept[:] = list(self._kept), []
        return np.concatenate([np.zeros(0, self.dtype), *kept]).astype(self.dtype, copy=False)

    def listen(self, listener: Callable[[Any], object] | None) -> None:
        """Pass batches to `listener` while kernels run, on another thread: arrays of records, or text of
        `luthier::printf`. None: remove the listener."""
        if listener is not None and isinstance(self._default, Printer):
            listener = Printer(self._string, listener)
        self._listener = listener

    def sink(self, batch: NDArray[Any]) -> None:
        """Pass a batch to the listener, or to the default."""
        (self._listener or self._default)(batch)

    def _string(self, address: int) -> bytes | None:
        holder = self._memory.find(address)
        if holder is None:
            return None
        data = holder.view()[address - holder.address :][:LONGEST_STRING].tobytes()
        return data[: data.index(0)] if 0 in data else None

    def free(self) -> None:
        """Free the ring."""
        self._memory.free(self._allocation)


def open_channels(object: CodeObject, image: LoadedImage, memory: AllocationTable) -> dict[str, DeviceChannel]:
    """Open the channels that an object defines, by symbol, each with a ring.

    Raises:
        ToolError: a channel is malformed.
        DeviceError: the device has too little memory.
    """
    channels: dict[str, DeviceChannel] = {}
    # Search only writable segments: the file may be large.
    writable = [segment for segment in object.segments if segment.flags & E.PF_W]
    written = (object.view[segment.offset : segment.offset + segment.filesz] for segment in writable)
    if not any(MAGIC in bytes(contents) for contents in written):
        return channels
    for symbol in object.symbols:
        if symbol.type != "object" or not symbol.defined or symbol.size < len(MAGIC) or symbol.name in channels:
            continue
        address = image.host(symbol.address)
        holder = memory.find(address)
        if holder is None or address + symbol.size > holder.end:
            continue
        variable = holder.view()[address - holder.address :][: symbol.size]
        description = describe(plain_name(symbol.name), variable.tobytes())
        if description is None:
            continue
        allocation = memory.allocate(description.ring_size, f"ring of channel {description.name}")
        ring = Ring(description, variable, allocation.view(), allocation.address - address)
        channels[symbol.name] = DeviceChannel(ring, memory, allocation)
    return channels


@contextmanager
def drained(channels: Mapping[str, DeviceChannel]) -> Iterator[None]:
    """Drain the channels' rings while the block runs.

    Raises:
        BaseException: an exception of a listener, unless the block raises.
    """
    if not channels:
        yield
        return
    drain = ChannelDrain([(channel.ring, channel.sink) for channel in channels.values()])
    try:
        yield
    finally:
        drain.stop()
    problems: Sequence[BaseException] = drain.problems
    if problems:
        raise problems[0]
