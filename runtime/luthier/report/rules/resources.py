"""Rules about registers, LDS and scratch."""

from __future__ import annotations

from collections.abc import Iterator

from luthier.report.rules.declare import MeasuredKernel, ReportRule, RuleFinding
from luthier.report.rules.wording import PAGES, count
from luthier.support.wording import counted

FEW_WAVES = 2
"""Largest number of waves on a SIMD that is reported."""


def spilled(kernel: MeasuredKernel) -> Iterator[RuleFinding]:
    """Yield a note if work-items use private memory."""
    size = kernel.facts["private_segment"]
    if size:
        yield RuleFinding(
            text=f"{count(size)} bytes of scratch per work-item: spilled registers or local arrays",
            advice="index local arrays by constants only, or allow more registers with __launch_bounds__",
        )


def few_waves(kernel: MeasuredKernel) -> Iterator[RuleFinding]:
    """Yield a note if registers and LDS allow at most `FEW_WAVES` waves on a SIMD.

    Kernels with matrix instructions are left out: they hide latency by many independent operations of one wave.
    """
    waves, code = kernel.facts["waves_per_simd"], kernel.code
    if not waves or waves > FEW_WAVES or (code is not None and "matrix" in code.columns["kind"]):
        return
    vgprs, lds = kernel.facts["vgprs"] or 0, kernel.facts["group_segment"] or 0
    yield RuleFinding(
        text=f"at most {counted(waves, 'wave')} on a SIMD: {vgprs} VGPRs, {count(lds)} bytes of LDS per work-group",
        advice="use fewer registers or less LDS, or share the LDS among more work-items",
    )


SCRATCH = ReportRule(level="note", label="scratch", explanation=PAGES / "scratch.md", of_kernel=spilled)
OCCUPANCY = ReportRule(level="note", label="occupancy", explanation=PAGES / "occupancy.md", of_kernel=few_waves)
