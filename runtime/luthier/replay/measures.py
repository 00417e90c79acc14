"""Measures of captured launches, as recorded or replayed with another code object: ``luthier diff``."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from luthier.capture import Capture
from luthier.objects import CodeObject
from luthier.replay.jobs import CaptureJob, ReplayOutcome, outcome
from luthier.report.code_diff import Executions, Measures, measured
from luthier.support.table import Cell


class MeasuredOutcome(ReplayOutcome, kw_only=True, omit_defaults=True):
    """Outcome of a replay with the kernel's measures."""

    measures: dict[str, Cell] = field(default_factory=dict)


class Measure(CaptureJob[MeasuredOutcome], frozen=True, kw_only=True):
    """Replay of a capture that measures its kernel."""

    answers: ClassVar[type[Struct]] = MeasuredOutcome

    def run(self) -> MeasuredOutcome:
        """Replay in this process."""
        launch = self.launch(self.capture())
        done = launch.with_store(launch.run())
        kernel = launch.kernel.name
        row = outcome(done)
        return MeasuredOutcome(
            kernel=kernel,
            instructions=row.instructions,
            seconds=row.seconds,
            status=row.status,
            what=row.what,
            findings=row.findings,
            measures=dict(measured(launch.object, kernel, _executions(done.counts))),
        )


def recorded_measures(capture: Capture) -> Measures:
    """Return the measures of the recorded launch."""
    manifest = capture.manifest
    object = CodeObject(capture.object, manifest.object)
    return measured(object, manifest.kernel, _executions(capture.counts))


def _executions(counts: NDArray[np.void]) -> Executions:
    return Executions(counts["address"], counts["executions"], counts["lanes"])
