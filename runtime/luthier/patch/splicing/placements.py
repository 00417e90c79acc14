"""Placement of payloads in a kernel: hooks, edits of tools, and counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.isa import Isa
from luthier.module import Hook
from luthier.patch.counters.plan import Splice
from luthier.patch.payloads.code import BoundPayload
from luthier.patch.payloads.collection import Payloads
from luthier.patch.payloads.sites import InsertionSite
from luthier.patch.payloads.zones import Zone
from luthier.tool.edits import Edit

Bound = Sequence[tuple[InsertionSite, int]]
"""Sites with registers, each with the position of its payload in `Payloads.all`."""


class Placements(Struct, frozen=True):
    """Every payload of a kernel with its place, in the order of execution."""

    indices: NDArray[np.int64]
    """[n] index of its instruction."""
    zones: NDArray[np.int64]
    """[n] place relative to the instruction (`Zone`)."""
    numbers: NDArray[np.int64]
    """[n] position in `Payloads.all`."""
    immediates: tuple[tuple[int, ...], ...]
    """[n] its per-point numbers."""
    disturbs: NDArray[np.bool_]
    """[n] whether a clause there, or an early release of vector registers before it, must be undone."""

    @classmethod
    def of(
        cls, isa: Isa, payloads: Payloads, bound: Bound, edits: Sequence[Edit], counters: Sequence[Splice]
    ) -> Placements:
        """Put payloads in order, with edits next to their instructions.

        Args:
            payloads: receives code that does not belong to hooks.
            counters: code of counters.
        """
        # Plain tuples in the order of the fields: there is one for each of many sites.
        hooks = [(site.at, site.zone, number, site.numbers, True) for site, number in bound if site.zone is not None]
        added = [(one.at, one.zone, payloads.add(one.payload), (), True) for one in _added(isa, edits)]
        # A counter on a taken edge needs no vector registers, so it does not conflict with their deallocation.
        counting = [(one.at, one.zone, payloads.add(one.payload), (), one.zone != Zone.TAKEN) for one in counters]
        behind = [one for one in added if one[1] == Zone.BEHIND]
        before = [one for one in added if one[1] != Zone.BEHIND]
        placed = [*behind, *hooks, *before, *counting]
        indices, zones, numbers, immediates, disturbs = zip(*placed, strict=True) if placed else [()] * 5
        count = len(placed)
        return cls(
            np.fromiter(indices, np.int64, count),
            np.fromiter(zones, np.int64, count),
            np.fromiter(numbers, np.int64, count),
            tuple(immediates),
            np.array(disturbs, bool),
        )


def _added(isa: Isa, edits: Sequence[Edit]) -> Iterator[Splice]:
    """Yield the instructions that tools add to the application."""
    zones = {"before": Zone.BEFORE, "after": Zone.BEHIND}
    for edit in edits:
        if edit.place in zones:
            payload = BoundPayload(edit.code, (), len(isa.decode(edit.code)))
            yield Splice(edit.at, zones[edit.place], payload)


def _name_of(hook: Hook) -> str:
    """Return the hook's name, with its source location and its tool's module."""
    location = f" [{hook.location}]" if hook.location else ""
    return f"hook {hook.name}{location} of {hook.module.name}"


class PayloadNames:
    """The names of payloads, according to their hooks.

    Attributes:
        entry: name of the code at the kernel's entry.
    """

    def __init__(self, payloads: Payloads, bound: Bound) -> None:
        self._payloads = payloads
        self._hooks: dict[int, dict[str, None]] = {}
        at_entry: dict[str, None] = {}
        # Once for each call and payload, in the order of their first sites.
        calls = dict.fromkeys((site.use.call, number, site.zone is None) for site, number in bound)
        for call, number, is_at_entry in calls:
            if call is not None:
                name = _name_of(call.hook)
                self._hooks.setdefault(number, {})[name] = None
                if is_at_entry:
                    at_entry[name] = None
        self.entry = " and ".join(["what Luthier does when the kernel begins", *at_entry])

    def all(self) -> list[str]:
        """Return [payload] the name of each of `Payloads.all`."""
        names = [" and ".join(self._hooks.get(number, ())) for number in range(len(self._payloads.all))]
        for number, body in self._payloads.called.items():
            if names[number] and names[number] not in names[body]:
                names[body] += f" and {names[number]}" if names[body] else names[number]
        return [name or "code of a counter or of a tool's edit" for name in names]
