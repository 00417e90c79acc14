"""Whether a kernel waits for what it uses: a check of all its paths.

Operations run on behind a wave's back (`luthier.isa.waits`). The check follows, forward over blocks, edges, calls and
returns, which registers are outstanding and how many younger operations there are at least. A finding is an access to
such a register; and, as information, a wait that no path needs.
"""

from __future__ import annotations

from luthier.lifting.waits.check import WaitReport, check_waits
from luthier.lifting.waits.findings import Access, Finding, UnneededWait
from luthier.lifting.waits.outstanding import Outstanding

__all__ = ["Access", "Finding", "Outstanding", "UnneededWait", "WaitReport", "check_waits"]
