"""A check of all paths of a kernel: it must keep instructions apart that hardware does not.

What must be apart is in `luthier.arch.hazards`. The check follows, forward over blocks, edges, calls and
returns, which producers are not far enough away; a finding is a consumer that meets one. As information: ``s_nop`` that
no path needs.

Who needs the model alone does not import the check.
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
