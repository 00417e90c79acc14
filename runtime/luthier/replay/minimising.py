"""Smallest captures that still fail: ``luthier minimise``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from msgspec import Struct, field

from luthier.capture import write_capture
from luthier.capture.form import PAGE
from luthier.capture.minimise import Minimiser, group_count
from luthier.replay.jobs import CaptureJob, ReplayOutcome, ReplayStatus, prepared


class MinimisedOutcome(ReplayOutcome, kw_only=True, omit_defaults=True):
    """Outcome of a search for a smaller capture."""

    failure: str = ""
    """``difference``, ``fault`` or ``finding``."""
    tries: int = 0
    """Launches that were tried."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Sizes before and after."""


class Minimise(CaptureJob[MinimisedOutcome], frozen=True, kw_only=True):
    """Search for the smallest capture with the same failure.

    Args:
        output: path of the smaller capture.
        seconds: time after which the smallest one so far is written.
    """

    answers: ClassVar[type[Struct]] = MinimisedOutcome
    output: str
    seconds: float

    def run(self) -> MinimisedOutcome:
        """Search in this process."""
        capture = self.capture()
        recorded = prepared(capture, None, None) if self.object and not self.checks else None
        search = Minimiser(self.launch(capture), recorded, self.checks, self.seconds)
        smaller = search.run()
        write_capture(self.output, smaller)
        assert search.failure is not None  # otherwise `Minimiser.run` raises an error
        before, after = (
            {
                "work-groups": group_count(chosen.manifest),
                "bytes of memory": len(chosen.pages) * PAGE,
                "bytes of the file": Path(path).stat().st_size,
            }
            for path, chosen in ((self.file, capture), (self.output, smaller))
        )
        return MinimisedOutcome(
            status=ReplayStatus.EQUAL,
            what=search.failure.text,
            failure=search.failure.kind,
            tries=search.tries,
            sizes={name: (before[name], after[name]) for name in before},
        )
