"""Replays under tools: ``luthier replay -t``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from luthier.capture.place import AddressTaken
from luthier.errors import LuthierError
from luthier.objects.names import as_in_source
from luthier.replay.jobs import CaptureJob, ReplayOutcome, ReplayStatus
from luthier.run import results
from luthier.run.instrumentation import Instrumentation
from luthier.run.record import Recorder
from luthier.run.replaying import ReplayedRun
from luthier.support.losses import losses
from luthier.support.table import Table
from luthier.tool import parse_tools


class ToolsOutcome(Struct, kw_only=True):
    """Outcome of replays under tools, which ``luthier replay -t --json`` prints."""

    replays: tuple[ReplayOutcome, ...] = ()
    sections: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names, and their tables as text."""
    tools: tuple[dict[str, Any], ...] = ()
    """Tables of each tool as data."""
    faults: tuple[str, ...] = ()
    error: str = ""
    """Reason why the tools failed; empty if they did not."""


class ReplayUnderTools(CaptureJob[ToolsOutcome], frozen=True, kw_only=True):
    """Replays of captures under tools, in one process.

    Args:
        files: captures, instead of `file`.
        tools: as for ``-t``.
        hoist, mangled: as the options.
        output: a new folder for the results.
    """

    answers: ClassVar[type[Struct]] = ToolsOutcome
    files: tuple[str, ...] = ()
    tools: tuple[str, ...]
    hoist: bool | None = None
    mangled: bool = False
    output: str | None = None

    def run(self) -> ToolsOutcome:
        """Replay in this process."""
        recorder = Recorder(Path(self.output)) if self.output else None
        try:
            return self._replayed(recorder)
        finally:
            if recorder is not None:
                recorder.discard()

    def failed(self, problem: LuthierError) -> ToolsOutcome:
        """Return the outcome for an error of `run`."""
        return ToolsOutcome(error=str(problem))

    def _replayed(self, recorder: Recorder | None) -> ToolsOutcome:
        run = ReplayedRun(parse_tools(self.tools), recorder, hoist=self.hoist)
        rows = tuple(self._replay(run, file) for file in self.files)
        instrumentation = run.instrumentation
        instrumentation.end()
        reported = list(results.tables(instrumentation))
        error = _error(instrumentation) if any(isinstance(row.instructions, int) for row in rows) else ""
        if recorder is not None:
            status = int(max(row.status for row in rows))
            command = ["luthier", "replay", *self.files]
            devices = [f"emu:{device}" for device in run.devices]
            try:
                summary = results.summary(instrumentation, command, status, reported, devices=devices)
                recorder.finish(instrumentation, summary)
            except LuthierError as problem:
                error = error or str(problem)
        sections = [*reported, ("coverage", [results.coverage(results.kernels(instrumentation))])]
        return ToolsOutcome(
            replays=rows,
            sections=tuple((name, texts(tables, mangled=self.mangled)) for name, tables in sections),
            tools=tuple({"tool": name, "tables": [table.to_json() for table in tables]} for name, tables in reported),
            faults=tuple(instrumentation.faults),
            error=error,
        )

    def _replay(self, run: ReplayedRun, file: str) -> ReplayOutcome:
        job = replace(self, file=file)
        row = ReplayOutcome(status=ReplayStatus.IMPOSSIBLE, what="")
        try:
            capture = job.capture()
            row.kernel = capture.manifest.kernel
            row = self.outcome(capture, run.replay(job.launch(capture), self.threads, self.checks))
        except AddressTaken:
            raise
        except LuthierError as problem:
            row.what = str(problem)
        row.file = file
        return row


def texts(tables: Sequence[Table], *, mangled: bool) -> tuple[str, ...]:
    """Return tables as text."""
    return tuple(table.text() for table in (tables if mangled else as_in_source(tables)))


def _error(instrumentation: Instrumentation) -> str:
    """Return why the tools failed; empty if they did not."""
    try:
        results.check_tools(instrumentation)
        results.check(instrumentation)
        if lost := losses():  # the parent process does not know them
            raise LuthierError(f"lost: {lost[0]}")
    except LuthierError as problem:
        return str(problem)
    return ""
