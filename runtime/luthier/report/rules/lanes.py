"""Rules about idle lanes."""

from __future__ import annotations

from collections.abc import Iterator

from luthier.report.rules.declare import MeasuredKernel, MeasuredLine, ReportRule, RuleFinding
from luthier.report.rules.wording import PAGES, count, number

BUSY = 0.75
"""Share of the lanes that hold work-items from which they count as busy."""
FULL = 0.9
"""Share of a wave's lanes that work-groups must fill."""
_FEW = 2
"""Mean number of active lanes up to which a line is the work of single lanes."""


def diverged(line: MeasuredLine) -> Iterator[RuleFinding]:
    """Yield a finding if less than `BUSY` of the lanes that hold work-items are active in vector instructions."""
    ran, lanes = line.vector
    possible = ran * (line.kernel.facts["wave_size"] or 0) * line.kernel.full
    if not possible or lanes >= BUSY * possible:
        return
    wave = line.kernel.facts["wave_size"]
    if lanes <= _FEW * ran:
        advice = "spread the work of the single lane over the wave, or leave it to scalar instructions"
    else:
        advice = "sort or bin the work, give lanes equal numbers of iterations, or select instead of branching"
    yield RuleFinding(
        text=f"{number(100 * lanes / (ran * wave))} % of the lanes are active in {count(ran)} vector instructions",
        advice=advice,
        lost=(possible - lanes) / wave,
        at=line.most_executed,
    )


def partly_filled(kernel: MeasuredKernel) -> Iterator[RuleFinding]:
    """Yield a finding if work-groups fill less than `FULL` of their waves' lanes."""
    if kernel.full >= FULL:
        return
    executed = kernel.facts["vector_executed"] or 0
    yield RuleFinding(
        text=f"work-groups fill {number(100 * kernel.full)} % of the lanes of their waves",
        advice=f"launch work-groups whose size is a multiple of {kernel.facts['wave_size']}",
        lost=(1 - kernel.full) * executed,
    )


DIVERGENCE = ReportRule(level="warning", label="lanes", explanation=PAGES / "divergence.md", of_line=diverged)
PARTIAL_WAVES = ReportRule(
    level="warning", label="lanes", explanation=PAGES / "partial-waves.md", of_kernel=partly_filled
)
