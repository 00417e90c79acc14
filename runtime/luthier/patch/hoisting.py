"""Hooks that do nothing but count, which become counts."""

from __future__ import annotations

from collections.abc import Sequence

from luthier.counts import CELL_BYTES, Cell, CountRequest
from luthier.errors import HookError
from luthier.lifting import LiftedRepresentation
from luthier.patch.counter_code import LARGEST_LANE_WEIGHT
from luthier.patch.sites import Site, always_runs, cell_of


def hoist(lifted: LiftedRepresentation, sites: Sequence[Site]) -> tuple[list[Site], list[Site]]:
    """The sites that remain, and those whose hooks can be counts: nobody but such hooks uses their variables."""
    block_of = lifted.block_of

    def countable(site: Site) -> bool:
        plain, call = site.use.template.plain, site.use.call
        if plain is None or call is None or plain.offset % CELL_BYTES:
            return False
        if site.insertion is None or not always_runs(lifted, site.insertion):
            return False
        if plain.lanes and not abs(plain.weight) < LARGEST_LANE_WEIGHT:
            return False
        if not -(1 << 31) <= plain.weight < 1 << 31 or (plain.lanes and block_of[site.at] != block_of[site.point]):
            return False
        try:
            cell_of(call, plain).check()
        except HookError:
            return False
        return True

    possible = {site.number: countable(site) for site in sites}
    used = {  # what hooks see that do more than count
        fixup.symbol for site in sites if site.use.template.plain is None for fixup in site.use.template.fixups
    }
    hoisted = [
        site
        for site in sites
        if possible[site.number] and used.isdisjoint(fixup.symbol for fixup in site.use.template.fixups)
    ]
    numbers = {site.number for site in hoisted}
    return [site for site in sites if site.number not in numbers], hoisted


def requests_of(hoisted: Sequence[Site]) -> list[CountRequest]:
    """What is counted in the place of hooks."""
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
