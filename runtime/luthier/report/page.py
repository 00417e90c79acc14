"""The report page: one HTML file that needs no network.

The data is compressed JSON, one piece for the run and one for the code of each kernel, which the browser unpacks when
the kernel is opened. No data is HTML: scripts insert it as text, with characters that are not printable escaped, except
in notes, which the page saves again. A content security policy allows only the page's own scripts, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from msgspec.structs import replace

from luthier import __version__
from luthier.report import overview
from luthier.report.analysis import AnalysedRun
from luthier.report.blocks import changes
from luthier.report.code import ReportedCode
from luthier.report.compare import compared
from luthier.report.findings import SHOWN, loaded_rules
from luthier.report.hot import hot_lines
from luthier.report.notes import read_notes
from luthier.report.projected import projected
from luthier.report.shapes import SHOWN as SIZES_SHOWN
from luthier.report.sources import read_sources
from luthier.report.stacks import LaunchStacks, has_stacks
from luthier.report.timeline import timeline
from luthier.run.folder import RunFolder
from luthier.run.summary import ReportedTool
from luthier.support import strict_json
from luthier.support.extras import extra
from luthier.terminal import visible_json

_SCRIPTS = (
    "dom",
    "table",
    "notes",
    "timeline",
    "listing",
    "source",
    "graph",
    "kernel",
    "overview",
    "projection",
    "flame",
    "search",
    "main",
)
"""In this order, since later ones use earlier ones."""
_STACKS = 5_000
"""Maximum number of stacks of launches on a page."""
_BLOCKS = 5_000
"""Maximum number of blocks in a comparison; those with the largest difference come first."""


def document(
    analysed: AnalysedRun, roots: Sequence[Path] = ()
) -> tuple[dict[str, Any], dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """Return the page's data as JSON-compatible values: of the run, of the code of kernels by number, and source files.

    Args:
        analysed: the run.
        roots: additional folders with source files.

    Raises:
        LuthierError: the run is damaged.
    """
    run = analysed.run
    numbers, kernels, code_of = analysed.numbers, analysed.kernels, analysed.codes
    rules = {name: rule.to_json() for name, rule in loaded_rules().items()}
    paths: dict[str, int] = {}
    data = {
        "summary": replace(
            run.summary, tools=[ReportedTool(tool.tool, [], tool.options) for tool in run.summary.tools]
        ).to_json(),
        "options": run.summary.option_words(),
        "kernels": [kernel | {"units": _units(code_of.get(number))} for number, kernel in enumerate(kernels)],
        "coded": sorted(code_of),
        "hot": hot_lines(code_of, paths),
        "findings": [one.to_json(code_of, paths) for one in analysed.findings[:SHOWN]],
        "rules": rules,
        "shapes": analysed.shapes[:SIZES_SHOWN],
        "shapes_left_out": max(len(analysed.shapes) - SIZES_SHOWN, 0),
        "emulated": overview.is_emulated(run),
        "projection": projected(analysed.projected, numbers),
        "timeline": timeline(run, numbers, kernels),
        "stacks": _stacks(run, analysed),
        "coverage": overview.coverage(run, numbers),
        "tables": overview.as_in_source(analysed.tables),
        "tables_left_out": analysed.tables_left_out,
        "written_by": __version__,
    }
    code = {number: one.to_json(paths) for number, one in code_of.items()}
    shown = read_sources(paths, roots, run.summary.began_ns)
    sources = [{"path": one.path, "lines": one.lines, "note": one.note, "place": one.place} for one in shown]
    return data, code, sources


def _stacks(run: RunFolder, analysed: AnalysedRun) -> dict[str, Any] | None:
    """Return the launches by stack, those with most instructions first; None if the run has none."""
    if not has_stacks(run):
        return None
    stacks = LaunchStacks.of_kernels(run, analysed.numbers, analysed.kernels)
    left_out = max(len(stacks.rows) - _STACKS, 0)
    stacks.rows = stacks.rows[:_STACKS]
    return stacks.to_json() | {"left_out": left_out}


def _units(code: ReportedCode | None) -> dict[str, int]:
    """Return the executed instructions by unit; empty if unknown."""
    sums: dict[str, int] = {}
    for kind, times in zip(code.columns["kind"], code.executions, strict=False) if code else ():
        if times:
            sums[kind] = sums.get(kind, 0) + times
    return sums


def write_page(analysed: AnalysedRun, out: IO[bytes], roots: Sequence[Path] = ()) -> list[str]:
    """Write the page of a run, and return the source files that it contains.

    Args:
        analysed: the run.
        out: output file.
        roots: additional folders with source files.

    Raises:
        LuthierError: the run is damaged.
    """
    data, code, sources = document(analysed, roots)
    places = [place for one in sources if (place := one.pop("place")) and one["lines"] is not None]
    scripts = [_uplot("js"), *(_asset(f"{name}.js") for name in _SCRIPTS)]
    pieces = [_piece("run", data), *(_piece(f"code-{number}", one) for number, one in code.items())]
    pieces.append(_piece("sources", sources))
    notes = [{"place": note.place, "text": note.text} for note in read_notes(analysed.run.path)]
    pieces.append(_piece("notes", notes, shown=str))
    _assemble("page.html", "Luthier run", scripts, _uplot("css") + _asset("page.css"), pieces, out)
    return places


def write_comparison(run: RunFolder, against: RunFolder, out: IO[bytes]) -> None:
    """Write the page of differences between two runs.

    Raises:
        LuthierError: one of the runs is damaged.
    """
    rows, left, same = changes(run, against)
    data = {
        "commands": [one.summary.command for one in (run, against)],
        "paths": [str(one.path) for one in (run, against)],
        "tools": [[tool.tool for tool in one.summary.tools] for one in (run, against)],
        "tables": [table.to_json() for table in compared(run, against)],
        "blocks": [row.to_json() for row in rows[:_BLOCKS]],
        "blocks_left_out": max(len(rows) - _BLOCKS, 0),
        "blocks_same": same,
        "not_compared": left,
        "written_by": __version__,
    }
    scripts = [_asset(f"{name}.js") for name in ("dom", "table", "comparison")]
    _assemble("comparison.html", "Two Luthier runs", scripts, _asset("page.css"), [_piece("comparison", data)], out)


def _assemble(page: str, title: str, scripts: Sequence[str], style: str, pieces: Sequence[str], out: IO[bytes]) -> None:
    header, _, main = _asset(page).partition("<!--MAIN-->\n")
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    parts = {
        "POLICY": f"default-src 'none'; style-src 'unsafe-inline'; script-src {digests}",
        "TITLE": title,
        "STYLE": style,
        "HEADER": header,
        "MAIN": main,
        "DATA": "\n".join(pieces),
        "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    before, *rest = _asset("frame.html").split("<!--")
    out.write(before.encode())
    for piece in rest:
        name, _, text = piece.partition("-->")
        out.write(parts[name.strip()].encode() + text.encode())


def _piece(name: str, value: Any, shown: Callable[[str], str] = visible_json) -> str:
    """Embed data so that it cannot act as a script: base64 of compressed JSON, after `shown` has changed it."""
    text = shown(strict_json.dumps(value, separators=(",", ":"), default=str))
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return f'<script type="application/octet-stream" id="data-{name}">{packed}</script>'


def _asset(name: str) -> str:
    return (files("luthier.report") / "assets" / name).read_text(encoding="utf-8")


def _uplot(kind: str) -> str:
    """Return uPlot, from the package that contains it."""
    vendor = extra("youplot.vendor")

    return str(vendor.uplot_js() if kind == "js" else vendor.uplot_css())


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
