"""Reports of runs: the HTML page, the comparison of two runs, the merge of several."""

from __future__ import annotations

from luthier.report.page import write_page

__all__ = ["write_page"]
