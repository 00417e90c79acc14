"""Reports of runs: the HTML pages, the comparison of two runs, the merge of several."""

from __future__ import annotations

from luthier.report.compare import compared
from luthier.report.merge import merge
from luthier.report.page import write_comparison, write_page

__all__ = ["compared", "merge", "write_comparison", "write_page"]
