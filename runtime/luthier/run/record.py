"""Write a run folder: launches and sites while the program runs, everything else at its end.

Launches and sites stay in memory only briefly, so there may be many millions. ``summary.json`` is written last: a
folder without it belongs to a run that was killed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.errors import LuthierError
from luthier.lifting import LiftedRepresentation
from luthier.objects import CodeObject
from luthier.patch import KernelReport
from luthier.run import listings, schema
from luthier.run.api_calls import ApiCalls, columns_of
from luthier.run.events import RANGES
from luthier.run.folder import Claim
from luthier.run.instrumentation import Instrumentation
from luthier.run.patching import digest_of
from luthier.run.sessions import Session
from luthier.run.summary import RunSummary
from luthier.run.tables import Picked, Schema, TableWriter
from luthier.run.view import KernelResult, launched_kernels
from luthier.support.threads import Worker
from luthier.tool import TaskShare
from luthier.tool.counts import CellModule
from luthier.tool.observation import ApiEvent, LiveVariable
from luthier.tool.task import InstrumentationTask
from luthier.wire.memory import NEVER

_BATCH = 1 << 16
"""Number of rows written at a time."""
_PERIOD = 0.25
"""Seconds between checks for rows to write."""
_PART = 1 << 12
"""Number of elements of a variable in one row."""


class Recorder:
    """Writes the folder of one run. Thread-safe.

    Args:
        folder: a new or empty folder.
        calls: whether to record calls of HIP functions, and the program's ranges.
        stacks: whether to record the host's stack of each launch.

    Raises:
        LuthierError: it cannot be created, is not empty, or another run writes to it.
    """

    def __init__(self, folder: Path, *, calls: bool = False, stacks: bool = False) -> None:
        self.folder = folder
        """The run folder."""
        self.apis: tuple[str, ...] = ("hip", *RANGES) if calls else ()
        """APIs of which it records all calls."""
        self.stacks = stacks
        """Whether it records the host's stack of each launch."""
        self._calls = ApiCalls()
        self._tables: dict[str, TableWriter] = {}
        self._sites: list[dict[str, Any]] = []
        """Rows of each kernel that are not written yet."""
        self._listed: set[tuple[str, str]] = set()
        """Kernels with written instructions, by name and digest of their object."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._problem: LuthierError | None = None
        """Error that stopped the writing."""
        self._began = 0
        self._thread: Worker | None = None
        self._claim = Claim(folder)

    # While the program runs -----------------------------------------------------------------------------------------

    def begin(self, sessions: Sequence[Session], tools: Sequence[str]) -> None:
        """Start recording, before the program starts.

        Args:
            sessions: sessions of the program's processes; more will be added.
            tools: names of the tools.
        """
        self._sessions, self._tools = sessions, tools
        self._began = time.time_ns()
        self._thread = Worker(self._drain)

    def asked(
        self, object: CodeObject, task: InstrumentationTask, shares: Sequence[TaskShare], report: KernelReport | None
    ) -> None:
        """Record the hooks and counts that tools requested in a kernel."""
        same = {"kernel": task.lifted.kernel.name, "object": object.name, "digest": digest_of(object)}
        sites = {**same, **_sites(task, shares, self._tools, report)}
        with self._lock:
            self._sites.append(sites)
            self._write_sites(_BATCH)
        self.listed(task.lifted)

    def listed(self, lifted: LiftedRepresentation) -> None:
        """Record the instructions and blocks of a kernel."""
        object, kernel = lifted.object, lifted.kernel.name
        same = {"kernel": kernel, "object": object.name, "digest": digest_of(object)}
        with self._lock:
            if (kernel, same["digest"]) not in self._listed:
                self._listed.add((kernel, same["digest"]))
                self._append(schema.LISTINGS, listings.instructions(lifted), **same)
                self._append(schema.BLOCKS, listings.blocks(lifted), **same)

    def called(self, api: str, event: ApiEvent) -> None:
        """Record that a call of an API function has begun or ended."""
        if api in self.apis:
            with self._lock:
                self._calls.add(api, event)
                self._write_calls(_BATCH)

    def _write_calls(self, least: int) -> None:
        if len(self._calls.rows) >= least:
            self._append(schema.CALLS, columns_of(self._calls.take()))

    def _drain(self) -> None:
        while not self._stop.wait(_PERIOD):
            for session in list(self._sessions):
                if min(session.launches, session.records) - session.taken >= _BATCH:
                    self._write_launches(session, ended=False)

    def _write_launches(self, session: Session, *, ended: bool) -> None:
        while self._problem is None:
            records = session.take_records(_BATCH, ended=ended)
            rows = _launches(records[records["time"] != 0], session)
            if len(rows["number"]):
                self._append(schema.LAUNCHES, rows, process=session.pid)
            if len(records) < _BATCH or not records["time"].any():  # the process controls the number of records
                return

    def _write_sites(self, least: int) -> None:
        if sum(len(sites["address"]) for sites in self._sites) >= least:
            for sites in self._sites:
                rows = {name: values for name, values in sites.items() if not isinstance(values, str)}
                same = {name: value for name, value in sites.items() if isinstance(value, str)}
                self._append(schema.SITES, rows, **same)
            self._sites.clear()

    def _append(self, table: Schema, rows: Mapping[str, Any], **same: Any) -> None:
        """Append rows, unless writing has failed."""
        if self._problem is not None:
            return
        try:
            self._table(table).append(rows, **same)
        except LuthierError as problem:
            self._problem = problem

    def _table(self, table: Schema) -> TableWriter:
        if table.name not in self._tables:
            self._tables[table.name] = TableWriter(self.folder, table)
        return self._tables[table.name]

    # At its end -----------------------------------------------------------------------------------------------------

    def finish(self, instrumentation: Instrumentation, summary: RunSummary) -> None:
        """Write the remaining data.

        Args:
            summary: summary without times and tables, which are added here.

        Raises:
            LuthierError: something could not be written; then the folder lacks the summary.
        """
        self._end_drain()
        for session in self._sessions:
            self._write_launches(session, ended=True)
        with self._lock:
            self._write_sites(1)
            self._calls.end()
            self._write_calls(1)
        for table, rows in (
            (schema.KERNELS, _kernels(launched_kernels(self._sessions))),
            (schema.COUNTERS, _counters(instrumentation, self._tools)),
            (schema.COUNTS, _counts(instrumentation)),
        ):
            for batch, same in rows:
                self._append(table, batch, **same)
        for session in self._sessions:
            for table, of_session in zip((schema.FRAMES, schema.STACKS), session.stacks.rows(), strict=True):
                if of_session:
                    self._append(table, columns_of(of_session), process=session.pid)
        try:
            if self._problem is not None:
                raise self._problem
            rows_of = dict(instrumentation.channels.tables)
            for table in schema.TABLES:
                writer = self._table(table)
                writer.close()
                rows_of[table.name] = writer.rows
            whole = replace(summary, began_ns=self._began, ended_ns=time.time_ns(), tables=rows_of)
            self._claim.finish(whole.text())
        finally:
            self.discard()

    def _end_drain(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def added(self, names: Iterable[str]) -> None:
        """Remember files and folders of the run folder that others are about to write."""
        self._claim.added += names

    def discard(self) -> None:
        """Stop writing; without `finish`, only complete tables of tools' records are left."""
        self._end_drain()
        for writer in self._tables.values():
            writer.discard()
        self._claim.discard()


Rows = Iterator[tuple[dict[str, Any], dict[str, Any]]]
"""Batches: columns, and columns with the same value in all rows."""


def _launches(records: NDArray[np.void], session: Session) -> dict[str, Any]:
    kernels = session.kernels
    index: NDArray[np.int64] = records["kernel"].astype(np.int64)
    index[index >= len(kernels)] = len(kernels)  # beyond the rows: unknown kernels
    known = np.flatnonzero(index < len(kernels))
    used = np.unique(index[known])
    names: list[dict[str, Any]] = [{} for _ in range(len(used) + 1)]
    for at, number in enumerate(used.tolist()):
        kernel = kernels[number]
        digest = digest_of(kernel.object)
        names[at] = {"kernel": kernel.name, "object": kernel.object.name, "digest": digest, "device": kernel.gpu}
    place_of = np.full(len(kernels) + 1, len(used))
    place_of[used] = np.arange(len(used))
    place = place_of[index]
    columns: dict[str, Any] = {
        name: Picked([one.get(name) for one in names], place) for name in ("kernel", "object", "digest", "device")
    }
    unknown = (records["end"] == 0) | (records["end"] == NEVER)
    times = {f"{name}_ns": np.ma.masked_array(records[name].astype(np.int64), unknown) for name in ("begin", "end")}
    stacks = {"thread": records["thread"], "stack": np.ma.masked_array(records["stack"], records["stack"] == 0)}
    axes = {
        f"{name}_{axis}": records[name][:, number] for name in ("grid", "block") for number, axis in enumerate("xyz")
    }
    whole = {name: records[name] for name in ("queue", "number", "group_segment", "private_segment")}
    written = {"instrumented": records["instrumented"] != 0, "time_ns": records["time"].astype(np.int64)}
    return columns | times | axes | whole | written | stacks


def _sites(
    task: InstrumentationTask, shares: Sequence[TaskShare], tools: Sequence[str], report: KernelReport | None
) -> dict[str, Any]:
    """Return the columns of `schema.SITES` for one kernel."""
    lifted = task.lifted
    refused = {} if report is None else {one.insertion: one for one in report.refusals if one.insertion is not None}
    whole = "the kernel could not be patched" if report is None else ""
    rows: list[tuple[int, str, str | None, str | None, str, str | None, str | None]] = []
    for tool, share in zip(tools, shares, strict=True):
        for number in share.hooks:
            at, place, call, _ = task.insertions[number]
            refusal = refused.get(number)
            status = "refused" if whole or refusal else "patched"
            kind, reason = (refusal.kind, refusal.message) if refusal else (None, whole or None)
            rows.append((at, tool, call.hook.name, place, status, kind, reason))
        counted = {at for number in share.counts for at, _ in task.counts[number].sites}
        rows += [
            (at, tool, None, None, "refused" if whole else "counted", None, whole or None) for at in sorted(counted)
        ]
    sites = np.array([row[0] for row in rows], np.int64)
    used, place_of = np.unique(sites, return_inverse=True)
    texts = [lifted.isa.text(lifted.code, int(index)) for index in used]
    mnemonics = [text.split(maxsplit=1)[0] if text else text for text in texts]
    rest = list(zip(*rows, strict=True))[1:] or [()] * 6
    named = zip(("tool", "hook", "place", "status", "kind", "reason"), rest, strict=True)
    return {
        "address": lifted.code.addresses[sites].astype(np.uint64),
        "mnemonic": Picked(mnemonics, place_of),
        "text": Picked(texts, place_of),
        **{name: _picked(values) for name, values in named},
    }


def _picked(values: Sequence[str | None]) -> Picked:
    names = list(dict.fromkeys(values))
    number = {name: at for at, name in enumerate(names)}
    return Picked(names, np.fromiter((number[value] for value in values), np.uint32, len(values)))


def _kernels(results: Sequence[KernelResult]) -> Rows:
    rows = [kernel.to_row() for kernel in results]
    if rows:
        yield {name: [row.get(name) for row in rows] for name in rows[0]}, {}


def _counters(instrumentation: Instrumentation, tools: Sequence[str]) -> Rows:
    owners = {
        number: tool
        for tool, modules in zip(tools, instrumentation.patcher.modules_of, strict=True)
        for number in modules
    }
    for session in instrumentation.sessions:
        for block, variable in session.variables():
            if isinstance(block.module, CellModule):
                continue  # these are in the table of counts
            same = {
                "tool": owners.get(id(block.module)),
                "module": block.module.name,
                "variable": variable.name,
                "process": session.pid,
                "device": variable.gpu,
                "type": variable.type,
                "bytes": variable.size,
            }
            for first, name, values in _parts(variable):
                yield {"first": [first], name: [values]}, same


def _parts(variable: LiveVariable) -> Iterator[tuple[int, str, Any]]:
    """Yield the first element, the column and the value of each part of a variable."""
    elements = variable.elements
    column = "raw" if elements is None else {"u": "unsigned", "i": "signed", "f": "real"}[elements.dtype.kind]
    values = variable.read() if elements is None else elements
    for first in range(0, len(values), _PART):
        yield first, column, values[first : first + _PART]


def _counts(instrumentation: Instrumentation) -> Rows:
    objects = {
        id(kernel.patched.companion.counters): kernel.object
        for session in instrumentation.sessions
        for kernel in session.kernels
        if kernel.patched.companion is not None and kernel.patched.companion.counters is not None
    }
    if not instrumentation.tools.tools:
        return
    view = instrumentation.view(instrumentation.tools.tools[0])
    for counts in view.counts():
        counters, object = counts.counters, objects[id(counts.counters)]
        numbers, place = np.unique(counters.opcodes, return_inverse=True)
        columns = {
            "address": counters.addresses.astype(np.uint64),
            "mnemonic": Picked([counters.mnemonics.get(number) for number in numbers.tolist()], place),
            "block": np.ma.masked_array(counters.block_of, counters.block_of < 0),
            "executions": np.ma.masked_array(counts.executions.astype(np.uint64), ~counts.counted),
            "active_lanes": np.ma.masked_array(counts.active_lanes.astype(np.uint64), ~counts.lanes_counted),
        }
        yield columns, {"kernel": counters.kernel, "object": object.name, "digest": digest_of(object)}
