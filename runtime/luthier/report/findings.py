"""The findings of a run: errors and losses, most costly first, each with its location in the code.

Costs of different kinds are compared in one unit, *slots* of a wave: a vector instruction with half of its lanes idle
loses half a slot; each cache line that a request does not need loses one; each cycle of an LDS bank conflict loses one.
This ranks findings; it does not predict time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from luthier.report.code import ReportedCode
from luthier.report.measures import by_line

SHOWN = 200
"""Maximum number of findings on a page."""


class ReportedKind(NamedTuple):
    """Kind of findings."""

    level: str
    """Level as in SARIF: error, warning, note."""
    text: str


KINDS: Mapping[str, ReportedKind] = {
    "wrong": ReportedKind("error", "a race, or a finding of a tool"),
    "cache lines": ReportedKind("warning", "requests access more cache lines than they need"),
    "bank conflicts": ReportedKind("warning", "lanes wait for each other at LDS banks"),
    "idle lanes": ReportedKind("warning", "vector instructions run with few active lanes"),
    "scratch": ReportedKind("note", "work-items use private memory: spilled registers or local arrays"),
    "not instrumented": ReportedKind("note", "instructions lack hooks that tools requested"),
}
"""Kind of finding -> level and meaning."""
_LEAST = 0.01
"""Losses below this share of the largest loss are not reported."""
_VECTOR = frozenset({"vector", "matrix", "memory", "lds"})
"""Units that process lanes."""
_BUSY = 0.9
"""Share of active lanes from which idle lanes are not reported."""
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{1,16}\b")


class ReportedFinding(Struct, frozen=True):
    """A finding on the page."""

    kind: str
    """One of `KINDS`."""
    kernel: int
    at: int | None
    """Position of the instruction in the kernel's code; None for the whole kernel."""
    text: str
    lost: float
    """Lost slots."""

    def to_json(self, codes: Mapping[int, ReportedCode], files: dict[str, int]) -> dict[str, Any]:
        """Return plain data for the page."""
        code = codes.get(self.kernel)
        place = code.places[self.at] if code is not None and self.at is not None else None
        where = None if place is None else [files.setdefault(place.file, len(files)), place.line]
        shown = {"kind": self.kind, "kernel": self.kernel, "at": self.at, "place": where}
        return shown | {"text": self.text, "lost": round(self.lost, 1)}


def findings(
    kernels: Sequence[dict[str, Any]],
    codes: Mapping[int, ReportedCode],
    tables: Sequence[Mapping[str, Any]],
    limit: int | None = SHOWN,
) -> list[ReportedFinding]:
    """Return findings: errors, then losses, most costly first, then notes about whole kernels.

    Args:
        kernels: from `overview.kernels`.
        codes: code of the kernels for which it is known.
        tables: from `overview.tool_tables`.
        limit: maximum number; None: all.
    """
    wrong = list(_wrong(kernels, codes, tables))
    losses = [one for number, code in codes.items() for one in _losses(number, kernels[number], code)]
    losses.sort(key=lambda loss: -loss.lost)
    most = losses[0].lost if losses else 0.0
    relevant = [one for one in losses if one.lost >= _LEAST * most]
    return [*wrong, *relevant, *_notes(kernels)][:limit]


def _losses(number: int, kernel: Mapping[str, Any], code: ReportedCode) -> Iterator[ReportedFinding]:
    # Losses of instructions without a line are reported together.
    without = [at for at, place in enumerate(code.places) if place is None]
    groups = [*code.lines.instructions, *([without] if without else [])]
    measured: dict[str, Sequence[Any]] = {}
    for measure in by_line(code.heat, groups):
        measured.setdefault(measure["name"], measure["values"])
    wave = kernel["wave_size"] or 0
    for at, which in enumerate(groups):
        values = {name: column[at] for name, column in measured.items() if column[at] is not None}
        if values.get("lines/request") is not None and values.get("efficiency %") is not None:
            touched, efficiency = values.get("lines", 0), values["efficiency %"]
            lost = touched * (1 - min(efficiency, 100) / 100)
            # No data layout avoids the one partly used line of a request with few lanes.
            avoidable = min(lost, max(touched - values.get("requests", 0), 0))
            if avoidable:
                text = f"{_number(values['lines/request'])} cache lines per request, {_number(efficiency)} % efficient"
                yield ReportedFinding("cache lines", number, _most(which, code, "lines"), text, avoidable)
        if values.get("conflicts"):
            text = f"{_count(values['conflicts'])} cycles of LDS bank conflicts"
            if values.get("cycles/needed") is not None:
                text += f", {_number(values['cycles/needed'])} times the cycles needed"
            yield ReportedFinding("bank conflicts", number, _most(which, code, "conflicts"), text, values["conflicts"])
        if wave and code.executions and code.lanes:
            yield from _idle(number, wave, code, which)


def _idle(number: int, wave: int, code: ReportedCode, which: Sequence[int]) -> Iterator[ReportedFinding]:
    ran = lanes = 0
    for at in which:
        if code.columns["kind"][at] in _VECTOR and code.executions[at] and code.lanes[at] is not None:
            ran += code.executions[at] or 0
            lanes += code.lanes[at] or 0
    if ran and lanes < _BUSY * ran * wave:
        share = 100 * lanes / (ran * wave)
        text = f"{_number(share)} % of the lanes are active in {_count(ran)} vector instructions"
        yield ReportedFinding(
            "idle lanes", number, max(which, key=lambda at: code.executions[at] or 0), text, ran - lanes / wave
        )


def _most(which: Sequence[int], code: ReportedCode, name: str) -> int:
    """Return the instruction with the largest value of a measure."""
    for heat in code.heat:
        if heat["name"] == name and heat["key"] == "address" and any(heat["values"][at] for at in which):
            return max(which, key=lambda at: heat["values"][at] or 0)
    return which[0]


def _wrong(
    kernels: Sequence[Mapping[str, Any]], codes: Mapping[int, ReportedCode], tables: Sequence[Mapping[str, Any]]
) -> Iterator[ReportedFinding]:
    """Yield races, and findings of tools."""
    named: dict[str, list[int]] = {}
    for number, kernel in enumerate(kernels):
        for name in {kernel["symbol"], kernel["name"]}:
            named.setdefault(str(name), []).append(number)
    for table in tables:
        columns = list(table["columns"])
        race = {"kernel", "kind", "earlier", "later"} <= set(columns)
        if not race and not {"kernel", "finding"} <= set(columns):
            continue
        for row in table["rows"]:
            cells = dict(zip(columns, row, strict=True))
            for number in named.get(str(cells["kernel"]), ())[:1]:
                text = f"race in LDS: {cells['kind']}" if race else str(cells["finding"])
                code, address = codes.get(number), _ADDRESS.search(str(cells["later"] if race else cells["finding"]))
                at = code.at(int(address[0], 16)) if code is not None and address else None
                if race and code is not None and (first := _ADDRESS.search(str(cells["earlier"]))):
                    earlier = code.at(int(first[0], 16))
                    if earlier is not None and code.places[earlier] is not None:
                        text += f", with {code.places[earlier]}"
                yield ReportedFinding("wrong", number, at, text, 0)


def _notes(kernels: Sequence[Mapping[str, Any]]) -> Iterator[ReportedFinding]:
    for number, kernel in enumerate(kernels):
        if kernel["private_segment"]:
            text = (
                f"{_count(kernel['private_segment'])} bytes of scratch per work-item: spilled registers or local arrays"
            )
            yield ReportedFinding("scratch", number, None, text, 0)
        refused = (kernel["requested_sites"] or 0) - (kernel["sites"] or 0)
        if refused > 0:
            text = (
                f"{_count(refused)} of {_count(kernel['requested_sites'])} instructions lack hooks that tools requested"
            )
            yield ReportedFinding("not instrumented", number, None, text, 0)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _count(value: float) -> str:
    return f"{value:,.0f}"
