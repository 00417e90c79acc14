"""Reasons for failed launches: requested sizes compared with the limits."""

from __future__ import annotations

from math import prod

from luthier.findings.finding import FailedLaunch
from luthier.wire.messages import CallSighting

_MOST_ITEMS = (1 << 32) - 1
"""Work-items of a grid in each direction: the fields of an AQL packet have 32 bits (HSA specification 2.9.6)."""


def launch_of(seen: CallSighting, kernel: str) -> FailedLaunch | None:
    """Return the launch of a call; None if it makes none."""
    if not seen.has_launch:
        return None
    groups = (seen.groups_x, seen.groups_y, seen.groups_z)
    items = (seen.items_x, seen.items_y, seen.items_z)
    return FailedLaunch(kernel, groups, items, seen.lds, "; ".join(_reasons(seen, groups, items)))


def _reasons(seen: CallSighting, groups: tuple[int, ...], items: tuple[int, ...]) -> list[str]:
    """Return all sizes that are out of range."""
    reasons = []
    if not all((*groups, *items)):
        reasons.append("a size is 0")
    in_group = prod(items)
    if seen.device_items and in_group > seen.device_items:
        reasons.append(f"{in_group:,} work-items in a work-group, but the device has at most {seen.device_items:,}")
    elif seen.kernel_items and in_group > seen.kernel_items:
        reasons.append(
            f"{in_group:,} work-items in a work-group, but the kernel was compiled for at most {seen.kernel_items:,}"
        )
    lds = seen.lds + seen.kernel_lds
    if seen.device_lds and lds > seen.device_lds:
        own = f" ({seen.kernel_lds:,} of the kernel and {seen.lds:,} of the launch)" if seen.kernel_lds else ""
        reasons.append(f"{lds:,} bytes of LDS{own}, but the device has {seen.device_lds:,}")
    if seen.most_groups and prod(groups) > seen.most_groups:
        reasons.append(
            f"a cooperative grid of {prod(groups):,} work-groups, but the device holds {seen.most_groups:,} at once"
        )
    for axis, of_grid, of_group in zip("xyz", groups, items, strict=True):
        if of_grid * of_group > _MOST_ITEMS:
            reasons.append(f"{of_grid * of_group:,} work-items in {axis}, but at most {_MOST_ITEMS:,} are allowed")
    return reasons
