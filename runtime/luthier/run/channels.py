"""Channels of the tools in a run: a ring for each on each device of each process, and where the records go."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
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
"""Function that makes of pushed records those that they stand for; None if it has failed."""
_PIECE = 4096
"""Records that are unpacked at a time: each may stand for one of every lane."""
Lose = Callable[[str], None]
"""Function that notes what is lost."""


class Channels:
    """Takes the records of all processes, on a thread that exists as soon as there is a channel.

    Lines of `luthier::printf` go to standard error: standard output is the program's. Records go to their tool's
    `at_records`; where there is none, to tables in the run directory.

    Args:
        folder: the run directory; None: records that no tool takes are counted only.
        lose: notes records that are lost, and why.
    """

    def __init__(self, folder: Path | None, lose: Lose) -> None:
        self._folder = folder
        self._lose = lose
        self._lock = threading.Lock()
        self._drain: ChannelDrain | None = None
        self._files: dict[tuple[int, str], _ChannelTable] = {}

    def open(
        self,
        session: Session,
        block: VariableBlock,
        channel: LiveChannel,
        owner: str,
        sink: Sink | None,
        unpack: Unpack | None = None,
    ) -> None:
        """Take what comes through a channel from now on.

        Args:
            block: the variables among which the channel is.
            owner: name of its tool.
            sink: gets the records; None if the tool does not want them.
            unpack: makes of pushed records those that they stand for.
        """
        with self._lock:
            if channel.ring.description.kind is Kind.LINES:
                sink = Printer(lambda address: session.string_at(channel.gpu, address), _print)
            elif sink is None and self._folder is not None:
                key = id(block.module), channel.name
                if key not in self._files:
                    self._files[key] = _ChannelTable(
                        self._folder, self._table_name(channel.name, owner), channel, self._lose
                    )
                sink = self._files[key].sink(channel)
            if unpack is not None:
                sink = _unpacking(unpack, sink or (lambda batch: None))
            if self._drain is None:
                self._drain = ChannelDrain()
            self._drain.add(channel.ring, sink or (lambda batch: None))

    def _table_name(self, channel: str, owner: str) -> str:
        name = re.sub(r"\W+", "_", f"trace-{channel}").replace("trace_", "trace-", 1)
        taken = {file.name for file in self._files.values()}
        return name if name not in taken else f"{name}-{owner or len(taken)}"

    def flush(self, session: Session, gpu: int) -> None:
        """Hand over what a device has pushed so far."""
        for channel in session.channels():
            if channel.gpu == gpu and self._drain is not None:
                self._drain.flush(channel.ring)

    def retire(self, session: Session) -> None:
        """Take what is left in a session's channels, and let no wave wait any more.

        The process has ended, or it is no longer known what it does.
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
        """Close all tables at the end of the run, when sessions are retired; tables are complete then."""
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
    """Return a sink that hands on what records stand for, a piece of a batch after the other."""

    def hand_on(batch: NDArray[Any]) -> None:
        for first in range(0, len(batch), _PIECE):
            records = unpack(batch[first : first + _PIECE])
            if records is not None and len(records):
                sink(records)

    return hand_on


def _own_names(dtype: np.dtype[Any]) -> tuple[str, str]:
    """Return the names of the columns for process and device: a record may have fields of the usual ones itself."""
    process, device = (own if own not in (dtype.names or ()) else f"run_{own}" for own in ("process", "device"))
    return process, device


class _ChannelTable:
    """The table of one channel.

    Errors of writing are reported once, and the program goes on.
    """

    def __init__(self, folder: Path, name: str, channel: LiveChannel, lose: Lose) -> None:
        self.name = name
        self._folder, self._lose = folder, lose
        self._writer: TableWriter | None = None
        self._failed = False

    @property
    def rows(self) -> int:
        """Return the number of records that are kept."""
        return self._writer.rows if self._writer is not None and not self._failed else 0

    def sink(self, channel: LiveChannel) -> Sink:
        """Return the function that takes the records of one device."""

        def append(batch: NDArray[Any]) -> None:
            if self._failed:
                return
            try:
                process, device = _own_names(batch.dtype)
                self._open(batch.dtype).append(batch, **{process: channel.pid, device: channel.gpu})
            except LuthierError as problem:
                self._failed = True
                self._lose(f"records of {channel.name} are not kept: {problem}")

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
        """Give the file its name."""
        if self._writer is not None and not self._failed:
            try:
                self._writer.close()
            except LuthierError as problem:
                self._lose(f"records of {self.name} are not kept: {problem}")
