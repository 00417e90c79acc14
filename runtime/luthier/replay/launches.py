"""Replays of captures: on an emulated device, with its checks, or on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from luthier.capture import write_capture
from luthier.capture.place import AddressTaken
from luthier.capture.replay import reduced
from luthier.capture.room import ReplayRoom
from luthier.errors import LuthierError
from luthier.findings.finding import Finding
from luthier.replay.jobs import CaptureJob, Job, ReplayOutcome, ReplayStatus, compared, is_gpu

if TYPE_CHECKING:
    from luthier.capture import Capture


class Replay(CaptureJob[ReplayOutcome], frozen=True, kw_only=True):
    """Replay of a capture.

    Args:
        relocate: on a GPU, treat words that look like addresses of the launch's memory as pointers.
        reduce: if the replay is equal, write the file again without memory that the launch does not access.
    """

    relocate: bool = False
    reduce: bool = False

    def run(self) -> ReplayOutcome:
        """Replay in this process."""
        return self.replay(self.capture())

    def replay(self, capture: Capture, room: ReplayRoom | None = None) -> ReplayOutcome:
        """Replay a capture, which may not be in a file yet.

        Args:
            room: what it shares with other replays.
        """
        if self.device is not None and is_gpu(self.device):
            return self._on_gpu(capture, self.device)
        launch = self.launch(capture)
        launch.room = room if self.object is None else None
        done = launch.run(self.threads, self.checks, keep=self.reduce)
        if not self.reduce:
            return self.outcome(capture, launch.with_store(done))
        if done.fault is None and done.counts_equal is not False:
            capture, done = reduced(capture, done)
            if done.equal:
                write_capture(self.file, capture)
        return self.outcome(capture, done)

    def _on_gpu(self, capture: Capture, name: str) -> ReplayOutcome:
        from luthier.capture.gpu_replay import replay_on_gpu
        from luthier.devices import open_device
        from luthier.devices.hip import HipDevice

        device = open_device(name)
        assert isinstance(device, HipDevice)  # by its name
        done = replay_on_gpu(capture, device, relocate=self.relocate)
        equal = done.difference is None
        return ReplayOutcome(
            kernel=capture.manifest.kernel,
            status=ReplayStatus.EQUAL if equal else ReplayStatus.DIFFERENT,
            what="equal" if equal else str(done.difference),
            device_seconds=done.seconds,
        )


class SeveralOutcomes(Struct, frozen=True):
    """Outcomes of several replays, by file."""

    outcomes: dict[str, ReplayOutcome]
    taken: tuple[str, ...]
    """Files of captures whose addresses this process uses."""

    @property
    def equal(self) -> set[str]:
        """Return the files whose replays were equal."""
        return {file for file, row in self.outcomes.items() if row.status == ReplayStatus.EQUAL}


class SeveralReplays(Job[SeveralOutcomes], frozen=True, kw_only=True):
    """Replays of several captures in one process."""

    answers: ClassVar[type[Struct]] = SeveralOutcomes
    files: tuple[str, ...]
    replay: Replay

    def run(self) -> SeveralOutcomes:
        """Replay them in this process."""
        return self.replay_held({})

    def replay_held(self, held: Mapping[str, Capture]) -> SeveralOutcomes:
        """Replay them in this process; captures in `held` are in no file yet."""
        rows: dict[str, ReplayOutcome] = {}
        taken = []
        with closing(ReplayRoom()) as room:
            for file in self.files:
                job = replace(self.replay, file=file)
                try:
                    rows[file] = job.replay(held[file] if file in held else job.capture(), room)
                except AddressTaken:
                    taken.append(file)
                except LuthierError as problem:
                    rows[file] = ReplayOutcome(status=ReplayStatus.IMPOSSIBLE, what=str(problem))
        return SeveralOutcomes(rows, tuple(taken))


class SanitizedOutcome(ReplayOutcome, kw_only=True, omit_defaults=True):
    """Outcome of a replay with its findings as records."""

    records: tuple[Finding, ...] = ()
    explained: bool = False
    """The records contain the fault."""


class Sanitize(CaptureJob[SanitizedOutcome], frozen=True, kw_only=True):
    """Replay of a capture with checks of ``luthier sanitize``.

    Args:
        kinds: kinds of findings from `luthier.findings.kinds.KINDS`.
    """

    answers: ClassVar[type[Struct]] = SanitizedOutcome
    kinds: Sequence[str]

    def run(self) -> SanitizedOutcome:
        """Replay in this process."""
        from luthier.findings.collector import FindingSet

        done = self.launch(self.capture()).run(self.threads, findings=FindingSet(self.kinds))
        row = compared(done)
        explained = done.fault is not None and any(record.check == "memory" for record in done.findings)
        return SanitizedOutcome(
            kernel=row.kernel, status=row.status, what=row.what, records=done.findings, explained=explained
        )

    def failed(self, problem: LuthierError) -> SanitizedOutcome:
        """Return the outcome for an error of `run`."""
        return SanitizedOutcome(status=ReplayStatus.IMPOSSIBLE, what=str(problem))
