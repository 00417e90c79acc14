"""Use of counts in place of hooks that only count."""

from __future__ import annotations

from collections.abc import Sequence

from luthier.errors import HookError
from luthier.lifting import LiftedRepresentation
from luthier.patch.counters.code import LARGEST_LANE_WEIGHT
from luthier.patch.payloads.sites import InsertionSite, PayloadUse, always_runs, cell_of, uses_of
from luthier.tool.counts import CELL_BYTES, Cell, CountRequest


def hoist(
    lifted: LiftedRepresentation, sites: Sequence[InsertionSite]
) -> tuple[list[InsertionSite], list[InsertionSite]]:
    """Return the remaining sites, and those whose hooks can become counts.

    Only hooks of the latter use their variables.
    """
    block_of, uses = lifted.block_of, uses_of(sites)
    # Variables of hooks that do more than count.
    used = {fixup.symbol for use in uses if use.template.plain is None for fixup in use.template.fixups}
    counting = {use: _counts(use) and used.isdisjoint(one.symbol for one in use.template.fixups) for use in uses}
    remaining: list[InsertionSite] = []
    hoisted: list[InsertionSite] = []
    for site in sites:
        plain = site.use.template.plain
        possible = counting[site.use] and site.insertion is not None and always_runs(lifted, site.insertion)
        if possible and plain is not None and plain.lanes:
            possible = block_of[site.at] == block_of[site.point]
        (hoisted if possible else remaining).append(site)
    return remaining, hoisted


def _counts(use: PayloadUse) -> bool:
    """Return whether a hook only adds to a cell a number that counters support."""
    plain, call = use.template.plain, use.call
    if plain is None or call is None or call.guard is not None or plain.offset % CELL_BYTES:
        return False
    if plain.lanes and not abs(plain.weight) < LARGEST_LANE_WEIGHT:
        return False
    if not -(1 << 31) <= plain.weight < 1 << 31:
        return False
    try:
        cell_of(call, plain).check()
    except HookError:
        return False
    return True


def requests_of(hoisted: Sequence[InsertionSite]) -> list[CountRequest]:
    """Return the count requests that replace hooks."""
    together: dict[tuple[Cell, int, bool], list[int]] = {}
    for site in hoisted:
        call, plain = site.use.call, site.use.template.plain
        assert call is not None
        assert plain is not None
        key = cell_of(call, plain), plain.weight, plain.lanes
        together.setdefault(key, []).append(site.point if plain.lanes else site.at)
    return [
        CountRequest(tuple((index, weight) for index in indices), "lane" if lanes else "wave", cell)
        for (cell, weight, lanes), indices in together.items()
    ]
