"""The formats of `luthier report`: a module each, and those that packages add.

A format is a `ReportFormat`. Those of packages are found by entry points of group ``luthier.report_formats``, which
are called as the format is::

    [project.entry-points."luthier.report_formats"]
    markdown = "my_package:MARKDOWN"

Formats are imported when they are chosen, or their help is shown.
"""

from __future__ import annotations

from luthier.extensions.entry_points import REPORT_FORMATS
from luthier.extensions.records import Extensions
from luthier.report.formats.declare import ReportFormat

FORMATS = Extensions(
    REPORT_FORMATS,
    "report format",
    ReportFormat,
    {name: f"luthier.report.formats.{name}:FORMAT" for name in ("csv", "json", "html", "perfetto", "sarif", "junit")},
)

__all__ = ["FORMATS", "ReportFormat"]
