"""The formats of `luthier report`: one module each, and those that packages add.

A format is a `ReportFormat`. Packages add formats as entry points of group ``luthier.report_formats``, whose name is
that of the format::

    [project.entry-points."luthier.report_formats"]
    markdown = "my_package:MARKDOWN"

A format is imported when it is chosen, or when its help is printed.
"""

from __future__ import annotations

from luthier.extensions.entry_points import REPORT_FORMATS
from luthier.extensions.records import Extensions
from luthier.report.formats.declare import ReportFormat

_SHIPPED = (
    "csv",
    "json",
    "html",
    "perfetto",
    "sarif",
    "junit",
    "lcov",
    "llvm-cov",
    "sample-profile",
    "folded",
    "speedscope",
)
FORMATS = Extensions(
    REPORT_FORMATS,
    "report format",
    ReportFormat,
    {name: f"luthier.report.formats.{name.replace('-', '_')}:FORMAT" for name in _SHIPPED},
)

__all__ = ["FORMATS", "ReportFormat"]
