"""Check of all paths of a kernel for the required distances between instructions.

The hazards are in `luthier.arch.hazards`. The check follows producers that are not far enough away, forward over
blocks, edges, calls and returns. A finding is a consumer that meets such a producer. As information, the check also
reports ``s_nop`` that no path needs.

The check is imported on demand, so that the model can be used without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.hazards.wait_states.check import HazardReport as HazardReport
    from luthier.hazards.wait_states.check import check_hazards as check_hazards
    from luthier.hazards.wait_states.findings import HazardFinding as HazardFinding
    from luthier.hazards.wait_states.findings import UnneededNop as UnneededNop

__getattr__ = lazy_names(__name__)
