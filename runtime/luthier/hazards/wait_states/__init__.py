"""A check of all paths of a kernel: it must keep instructions apart that hardware does not.

What must be apart is in `luthier.arch.hazards`. The check follows, forward over blocks, edges, calls and
returns, which producers are not far enough away; a finding is a consumer that meets one. As information: ``s_nop`` that
no path needs.
"""

from __future__ import annotations

from luthier.hazards.wait_states.check import HazardReport, check_hazards
from luthier.hazards.wait_states.findings import HazardFinding, UnneededNop

__all__ = ["HazardFinding", "HazardReport", "UnneededNop", "check_hazards"]
