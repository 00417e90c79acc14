"""Captured launches, original and patched: ``luthier verify FILE.lcap``."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct, field

from luthier.patch import PatchReport
from luthier.replay.jobs import CaptureJob, ReplayOutcome, ReplayStatus, target_of
from luthier.tool import parse_tools
from luthier.verify.captured import verify_capture
from luthier.verify.text import verdict_lines


class VerifiedOutcome(ReplayOutcome, kw_only=True, omit_defaults=True):
    """Outcome of a verification."""

    verdict: dict[str, Any] = field(default_factory=dict)
    """`luthier.verify.KernelVerdict.to_json`."""
    lines: tuple[str, ...] = ()
    """The verdict as text."""
    refusals: tuple[str, ...] = ()
    """Refusals as text."""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain data, with the verdict's fields at the top level."""
        data = super().to_json()
        return {name: data[name] for name in ("file", "status", "what")} | self.verdict


class Verify(CaptureJob[VerifiedOutcome], frozen=True, kw_only=True):
    """Verification of a captured launch under tools.

    Args:
        tools: as for ``-t``.
        strict, hoist: as the options.
    """

    answers: ClassVar[type[Struct]] = VerifiedOutcome
    tools: tuple[str, ...]
    strict: bool = False
    hoist: bool | None = None

    def run(self) -> VerifiedOutcome:
        """Verify in this process."""
        verdict = verify_capture(
            self.capture(),
            parse_tools(self.tools),
            target=target_of(self.device),
            strict=self.strict,
            hoist=self.hoist,
            threads=self.threads,
        )
        refused = () if verdict.patch is None else PatchReport((verdict.patch,), {}, ()).refusal_lines()
        return VerifiedOutcome(
            status=ReplayStatus.EQUAL if verdict.equal else ReplayStatus.DIFFERENT,
            what="equal" if verdict.equal else verdict.problems[0],
            verdict=verdict.to_json(),
            lines=tuple(verdict_lines(verdict)),
            refusals=tuple(refused),
        )
