"""Channels of the tools in a run: rings for each device of each process, and the destination of their records."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from luthier.channels import ChannelDrain, Printer
from luthier.channels.drain import Sink
from luthier.errors import LuthierError
from luthier.run.sessions import Session
from luthier.terminal import say_raw
from luthier.tool.observation import LiveChannel
from luthier.wire.channels import Kind, Mode

if TYPE_CHECKING:
    from luthier.patch.output.companion import VariableBlock
    from luthier.run.tables import TableWriter

Unpack = Callable[[NDArray[Any]], NDArray[Any] | None]
"""Expands pushed records into the records that they stand for; returns None if it fails."""
_PIECE = 4096
"""Number of records expanded at a time, since each may stand for one record of every lane."""
Lose = Callable[[str], None]
"""Reports a loss."""


class Channels:
    """Receives the records of all processes, on a thread that starts with the first channel.

    Lines of `luthier::printf` go to standard error, since standard output belongs to the program. Records go to their
    tool's `at_records`; without it, to tables in the run folder.

    Args:
        folder: run folder; None: records that no tool takes are only counted.
        lose: reports lost records with the reason.

    Attributes:
        unkept: numbers of records that were only counted, by tool and channel.
    """

    def __init__(self, folder: Path | None, lose: Lose) -> None:
        self._folder = folder
        self._lose = lose
        self._lock = threading.Lock()
        self._drain: ChannelDrain | None = None
        self._files: dict[tuple[int, str], _ChannelTable] = {}
        self.unkept: Counter[tuple[str, str]] = Counter()

    def open(
        self,
        session: Session,
        block: VariableBlock,
        channel: LiveChannel,
        owner: str,
        sink: Sink | None,
        unpack: Unpack | None = None,
    ) -> None:
        """Start receiving the records of a channel.

        Args:
            block: variables that contain the channel.
            owner: name of its tool.
            sink: receives the records; None if the tool does not want them.
            unpack: expands pushed records.
        """
        with self._lock:
            if channel.ring.description.kind is Kind.LINES:
                sink = Printer(lambda address: session.string_at(channel.gpu, address), _print)
            elif sink is None and self._folder is None:
                sink = partial(self._only_count, (owner, channel.name))
            elif sink is None:
                assert self._folder is not None
                key = id(block.module), channel.name
                if key not in self._files:
                    self._files[key] = _ChannelTable(
                        self._folder, self._table_name(channel.name, owner), channel, self._lose
                    )
                sink = self._files[key].sink(channel)
            if unpack is not None:
                sink = _unpacking(unpack, sink)
            if self._drain is None:
                self._drain = ChannelDrain()
            self._drain.add(channel.ring, sink)

    def _only_count(self, name: tuple[str, str], batch: NDArray[Any]) -> None:
        self.unkept[name] += len(batch)

    def _table_name(self, channel: str, owner: str) -> str:
        name = re.sub(r"\W+", "_", f"trace-{channel}").replace("trace_", "trace-", 1)
        taken = {file.name for file in self._files.values()}
        return name if name not in taken else f"{name}-{owner or len(taken)}"

    def flush(self, session: Session, gpu: int) -> None:
        """Deliver the records that a device has pushed so far."""
        for channel in session.channels():
            if channel.gpu == gpu and self._drain is not None:
                self._drain.flush(channel.ring)

    def retire(self, session: Session) -> None:
        """Receive the remaining records of a session and stop waves from waiting for room.

        The process has ended, or its state is unknown.
        """
        for channel in session.channels():
            channel.ring.mode = Mode.CLOSED
            if self._drain is not None:
                self._drain.retire(channel.ring)
            if channel.ring.damaged:
                whose = f"process {session.pid} has overwritten the channel's counters"
                self._lose(f"records of {channel.name} may be lost: {whose}")
        session.forget_rings()

    @property
    def tables(self) -> dict[str, int]:
        """Return the number of rows of each table in the run directory."""
        return {file.name: file.rows for file in self._files.values() if file.rows}

    def close(self) -> None:
        """Close all tables at the end of the run, after all sessions are retired, which completes them."""
        with self._lock:
            if self._drain is not None:
                self._drain.stop()
                for problem in self._drain.problems:
                    self._lose(f"records were lost: {problem!r}")
                self._drain = None
            for file in self._files.values():
                file.close()


def _print(text: str) -> None:
    say_raw(text, file=sys.stderr, end="", flush=True)


def _unpacking(unpack: Unpack, sink: Sink) -> Sink:
    """Return a sink that expands records piece by piece and passes them on."""

    def hand_on(batch: NDArray[Any]) -> None:
        for first in range(0, len(batch), _PIECE):
            records = unpack(batch[first : first + _PIECE])
            if records is not None and len(records):
                sink(records)

    return hand_on


def _own_names(dtype: np.dtype[Any]) -> tuple[str, str]:
    """Return the names of the columns for process and device; records may have fields of the usual names."""
    process, device = (own if own not in (dtype.names or ()) else f"run_{own}" for own in ("process", "device"))
    return process, device


class _ChannelTable:
    """Table of one channel. The first write error is reported and ends the table, not the program."""

    def __init__(self, folder: Path, name: str, channel: LiveChannel, lose: Lose) -> None:
        self.name = name
        self._folder, self._lose = folder, lose
        self._writer: TableWriter | None = None
        self._failed = False

    @property
    def rows(self) -> int:
        """Return the number of records in the table."""
        return self._writer.rows if self._writer is not None and not self._failed else 0

    def sink(self, channel: LiveChannel) -> Sink:
        """Return the sink for the records of one device."""

        def append(batch: NDArray[Any]) -> None:
            if self._failed:
                return
            try:
                process, device = _own_names(batch.dtype)
                self._open(batch.dtype).append(batch, **{process: channel.pid, device: channel.gpu})
            except LuthierError as problem:
                self._failed = True
                self._lose(f"records of {channel.name} are lost: {problem}")

        return append

    def _open(self, dtype: np.dtype[Any]) -> TableWriter:
        from luthier.run.tables import Column, Schema, TableWriter

        if self._writer is None:
            meanings = dict.fromkeys(dtype.names or (), "of the tool's record")
            fields = Schema.of_dtype("", "", dtype, meanings)
            process, device = _own_names(dtype)
            columns = (
                Column(process, "int64", "process that launched the kernel"),
                Column(device, "int64", "number of the device in that process"),
                *fields.columns,
            )
            what = f"records that hooks pushed to the channel {self.name.removeprefix('trace-')}"
            self._writer = TableWriter(self._folder, Schema(self.name, what, columns))
        return self._writer

    def close(self) -> None:
        """Complete the file and give it its name."""
        if self._writer is not None and not self._failed:
            try:
                self._writer.close()
            except LuthierError as problem:
                self._lose(f"records of {self.name} are lost: {problem}")
