"""The rules that find faults in the counts of a run: one function each, and those that packages add.

A rule is a `ReportRule`. Packages add rules as entry points of group ``luthier.report_rules``, whose name is that of
the rule::

    [project.entry-points."luthier.report_rules"]
    long-strides = "my_package:LONG_STRIDES"

`luthier explain` prints the page of a rule.
"""

from __future__ import annotations

from luthier.extensions.entry_points import REPORT_RULES
from luthier.extensions.records import Extensions
from luthier.report.rules.declare import MeasuredKernel, MeasuredLine, ReportRule, RuleFinding, lines_of

RULES = Extensions(
    REPORT_RULES,
    "report rule",
    ReportRule,
    {
        "tool-finding": "luthier.report.rules.tools:TOOL_FINDING",
        "coalescing": "luthier.report.rules.memory:COALESCING",
        "bank-conflicts": "luthier.report.rules.memory:BANK_CONFLICTS",
        "divergence": "luthier.report.rules.lanes:DIVERGENCE",
        "partial-waves": "luthier.report.rules.lanes:PARTIAL_WAVES",
        "scratch": "luthier.report.rules.resources:SCRATCH",
        "occupancy": "luthier.report.rules.resources:OCCUPANCY",
        "not-instrumented": "luthier.report.rules.tools:NOT_INSTRUMENTED",
    },
)
"""Rules by name."""

__all__ = ["RULES", "MeasuredKernel", "MeasuredLine", "ReportRule", "RuleFinding", "lines_of"]
