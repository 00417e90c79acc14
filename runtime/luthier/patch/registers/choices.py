"""Bindings of one template at all its points of a kernel.

Each binding needs another payload, so a point reuses an existing one if it fits. However, each point gets one of its
cheapest bindings: a point that does not need to spill does not use a binding that spills.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier.isa.registers import M0, SCC, SGPRS
from luthier.lifting import LivePoints
from luthier.patch.registers.allocation import LINK, bind, direct_place
from luthier.patch.registers.binding import SPILLING, Binding, RegisterBudget, kept_places
from luthier.patch.registers.copies import holders
from luthier.payload import Template

_STRETCH = 4096
"""Number of points that are processed together, which determines the time for each new binding."""
_LATEST = 8
"""Number of bindings of earlier stretches that are tried again."""


class Fit(NamedTuple):
    """Conditions at a point under which a binding is valid there, as bit sets of units."""

    in_all_lanes: bool
    """Whether `dead` and `live` refer to any lane; otherwise to the active lanes."""
    dead: int
    """Units that must be dead."""
    dead_anywhere: int
    """Units that must be dead in all lanes."""
    live: tuple[int, ...]
    """Bit sets, each of which must contain a live unit."""

    @classmethod
    def of(cls, binding: Binding, template: Template, sources: tuple[int, ...], wave_size: int) -> Fit:
        """Return the conditions of a binding that `bind` returned with these arguments at another point."""
        dead, dead_anywhere, live = binding.lost, 0, []
        for units, wanted in kept_places(template, sources, wave_size):
            if wanted and units[0] in binding.fixed:
                live.append(wanted)
            else:
                dead |= wanted
        if binding.lane_vgpr is not None and binding.lane_vgpr not in binding.spilled_whole:
            dead_anywhere |= 1 << binding.lane_vgpr
        if (binding.spilled_whole or binding.agpr_slots) and binding.kept_scc is None:
            dead |= 1 << SCC
        if binding.lds is not None and binding.kept_m0 is None:
            dead_anywhere |= 1 << M0
        return cls(template.writes_inactive_lanes, dead, dead_anywhere, tuple(live))

    def at(self, points: LivePoints) -> NDArray[np.bool_]:
        """Return [points] whether the binding is valid there."""
        misfits = points.has(self.dead, in_all_lanes=self.in_all_lanes)
        if self.dead_anywhere:
            misfits |= points.has(self.dead_anywhere, in_all_lanes=True)
        for units in self.live:
            misfits |= ~points.has(units, in_all_lanes=self.in_all_lanes)
        return ~misfits


def least_vectors(template: Template) -> int:
    """Return the minimum number of VGPRs of a payload. Inputs may be in the application's registers."""
    inputs = {taken.unit for taken in template.inputs}
    groups = (group for group in template.groups if group.first not in SGPRS)
    own = (group.count for group in groups if inputs.isdisjoint(range(group.first, group.first + group.count)))
    return sum(own)


class Choices:
    """The bindings of one template in a kernel.

    Args:
        template, sources, budget, wave_size, called: see `bind`.
        all_or_none: whether to stop at the first point with too few registers.

    Attributes:
        made: the bindings.
    """

    def __init__(
        self,
        template: Template,
        sources: tuple[int, ...],
        budget: RegisterBudget,
        wave_size: int,
        *,
        called: bool = False,
        all_or_none: bool = False,
    ) -> None:
        self._template, self._sources, self._budget, self._wave_size = template, sources, budget, wave_size
        self._called, self._all_or_none = called, all_or_none
        self.made: list[Binding] = []
        self._fits: list[Fit] = []
        groups = [group for group in template.groups if not sources or direct_place(group, template, sources) is None]
        scalars = sum(group.count for group in groups if group.first in SGPRS)
        self._scalars = scalars + (LINK[0] if called else 0)
        self._vectors = sum(group.count for group in groups) - scalars
        taken = holders(sources) | template.destinations
        self._free_scalars, self._free_vectors = budget.scalars & ~taken, budget.vectors & ~taken

    def choose(self, points: LivePoints) -> list[int]:
        """Return [points] the index in `made` of each point's binding, or -1.

        It is -1 if there are too few registers, and with `all_or_none` also at all later points.
        """
        numbers: list[int] = []
        for first in range(0, len(points), _STRETCH):
            numbers += self._choose(points.only(slice(first, first + _STRETCH))).tolist()
        return numbers

    def _choose(self, points: LivePoints) -> NDArray[np.int64]:
        numbers = np.full(len(points), -1)
        waiting = np.ones(len(points), bool)
        if self._called:  # only few points have no dead pair of SGPRs
            waiting &= points.has_dead_pair(self._free_scalars, in_all_lanes=self._template.writes_inactive_lanes)
        # More expensive candidates, which spill, and the points that they fit.
        dear: list[tuple[int, NDArray[np.bool_]]] = []

        def spread(number: int) -> None:
            """Assign a binding to all points that cannot have a cheaper one."""
            if not np.count_nonzero(waiting):  # an eighth of the time of `any`
                return
            fits, cost = self._fits[number].at(points), self.made[number].cost
            chosen = waiting & fits
            if cost:
                dear.append((number, fits))
                chosen &= self._too_few(points, cost)
            numbers[chosen] = number
            waiting[chosen] = False

        for number in range(len(self.made) - 1, max(len(self.made) - _LATEST, 0) - 1, -1):
            spread(number)
        while np.count_nonzero(waiting):
            point = int(waiting.argmax())
            waiting[point] = False
            live = points[point]
            binding = bind(self._template, self._sources, live, self._budget, self._wave_size, called=self._called)
            if binding is None:
                if self._all_or_none:
                    break
                continue
            cheaper = (number for number, fits in dear if fits[point] and self.made[number].cost <= binding.cost)
            numbers[point] = next(cheaper, -1)
            if numbers[point] < 0:
                numbers[point] = self._add(binding)
                spread(len(self.made) - 1)
        return numbers

    def _too_few(self, points: LivePoints, cost: int) -> NDArray[np.bool_]:
        """Return [points] whether there is certainly no binding with a lower cost."""
        lanes = self._template.writes_inactive_lanes
        few = points.dead_among(self._free_vectors, in_all_lanes=lanes) < self._vectors
        if cost < SPILLING:
            few |= points.dead_among(self._free_scalars, in_all_lanes=lanes) < self._scalars
        return few

    def _add(self, binding: Binding) -> int:
        self.made.append(binding)
        self._fits.append(Fit.of(binding, self._template, self._sources, self._wave_size))
        return len(self.made) - 1
