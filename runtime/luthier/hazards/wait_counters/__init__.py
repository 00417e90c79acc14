"""Check of all paths of a kernel for missing waits.

Operations run asynchronously to their wave (`luthier.hazards.wait_counters.model`). The check follows outstanding
registers, with the minimum number of younger operations, forward over blocks, edges, calls and returns. A finding is an
access to such a register. As information, the check also reports waits that no path needs.
"""

from __future__ import annotations

from luthier.hazards.wait_counters.check import WaitReport, check_waits
from luthier.hazards.wait_counters.findings import Access, UnneededWait, WaitFinding
from luthier.hazards.wait_counters.order import check_order
from luthier.hazards.wait_counters.outstanding import Outstanding

__all__ = ["Access", "Outstanding", "UnneededWait", "WaitFinding", "WaitReport", "check_order", "check_waits"]
