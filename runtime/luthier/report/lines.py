"""Source lines of a kernel, with measurements at the instructions charged to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from luthier.report.charging import SourceLine
from luthier.report.measures import by_line


class Lines(Struct, frozen=True):
    """Columns with one element for each line, sorted by file and line."""

    places: list[SourceLine]
    instructions: list[list[int]]
    """Positions of the instructions in the kernel's code."""
    executed: list[int | None]
    """Instructions executed by waves; None if not counted."""
    times: list[int | None]
    """Executions of its most executed instruction."""
    lanes: list[float | None]
    """Mean number of active lanes over all executed vector instructions."""
    kinds: list[dict[str, int]]
    """Executed instructions by unit; if nothing was counted, instructions of the code."""
    measures: list[dict[str, Any]]
    """What tools measured: ``tool``, ``name``, ``values``."""

    @classmethod
    def of(
        cls,
        places: Sequence[SourceLine | None],
        executions: Sequence[int | None],
        lanes: Sequence[int | None],
        kinds: Sequence[str],
        heat: Sequence[Mapping[str, Any]],
    ) -> Lines:
        """Group a kernel by line; all arguments but `heat` have one element for each instruction, or none."""
        groups: dict[SourceLine, list[int]] = {}
        for at, place in enumerate(places):
            if place is not None:
                groups.setdefault(place, []).append(at)
        ordered = sorted(groups)
        members = [groups[place] for place in ordered]
        counted = bool(executions) and any(one is not None for one in executions)
        executed: list[int | None] = []
        times: list[int | None] = []
        active: list[float | None] = []
        units: list[dict[str, int]] = []
        for which in members:
            counts = [executions[at] or 0 for at in which] if counted else []
            total = sum(counts)
            executed.append(total if counted else None)
            times.append(max(counts) if counted else None)
            known = [at for at in which if counted and lanes and executions[at] and lanes[at] is not None]
            waves = sum(executions[at] or 0 for at in known)
            active.append(round(sum(lanes[at] or 0 for at in known) / waves, 2) if waves else None)
            unit: dict[str, int] = {}
            for at, count in zip(which, counts or [1] * len(which), strict=True):
                unit[kinds[at]] = unit.get(kinds[at], 0) + count
            units.append({name: count for name, count in unit.items() if count})
        return cls(ordered, members, executed, times, active, units, by_line(heat, members))

    def to_json(self, files: dict[str, int]) -> dict[str, Any]:
        """Return plain data for the page; new files are added to `files`."""
        return {
            "file": [files.setdefault(place.file, len(files)) for place in self.places],
            "line": [place.line for place in self.places],
            "executed": self.executed if any(one is not None for one in self.executed) else None,
            "times": self.times if any(one is not None for one in self.times) else None,
            "lanes": self.lanes if any(one is not None for one in self.lanes) else None,
            "measures": self.measures,
        }
