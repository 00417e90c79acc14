"""Comparison of original and patched kernels: outputs must be equal, counters must equal the emulated device's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.verify.launch_plan import LaunchPlan as LaunchPlan
    from luthier.verify.launch_plan import read_plans as read_plans
    from luthier.verify.side_by_side import KernelVerdict as KernelVerdict
    from luthier.verify.side_by_side import verify_kernel as verify_kernel
    from luthier.verify.side_by_side import verify_object as verify_object

__getattr__ = lazy_names(__name__)
