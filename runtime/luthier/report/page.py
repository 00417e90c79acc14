"""The page: one HTML file that holds everything and asks no network for anything.

The data is compressed JSON, one piece for the run and one for the code of each kernel, which the browser unpacks when
the kernel is opened. Nothing of it is HTML: scripts put it into the page as text, in which what is not printable is
visible. A content security policy allows the page's own scripts, by their digests, and nothing from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from msgspec.structs import replace

from luthier import __version__
from luthier.report import overview
from luthier.report.blocks import changes
from luthier.report.code import ReportedCode, codes
from luthier.report.compare import compared
from luthier.report.findings import findings
from luthier.report.hot import hot_lines
from luthier.report.rows import KernelNumbers
from luthier.report.shapes import shapes
from luthier.report.sources import read_sources
from luthier.report.timeline import timeline
from luthier.run.folder import RunFolder
from luthier.run.summary import ReportedTool
from luthier.support import strict_json
from luthier.terminal import say, visible_json

_SCRIPTS = ("dom", "table", "timeline", "listing", "source", "graph", "kernel", "overview", "search", "main")
"""In this order: later ones use earlier ones."""
_BLOCKS = 5_000
"""Blocks that ran another number of times which a comparison has at most; those that differ most come first."""


def document(
    run: RunFolder, roots: Sequence[Path] = ()
) -> tuple[dict[str, Any], dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """Return what the page shows, as JSON-compatible data.

    It is data of the run, of the code of kernels by their number, and the source files that both count in.

    Args:
        run: the run.
        roots: folders where source files may be, besides where the compiler found them.

    Raises:
        LuthierError: the run is damaged.
    """
    numbers = KernelNumbers()
    kernels = overview.kernels(run, numbers)
    tables, left_out = overview.tool_tables(run)
    found = codes(run, numbers, kernels, tables)
    sizes, sizes_left_out = shapes(run, numbers, kernels)
    paths: dict[str, int] = {}
    data = {
        "summary": replace(
            run.summary, tools=[ReportedTool(tool.tool, [], tool.options) for tool in run.summary.tools]
        ).to_json(),
        "options": run.summary.option_words(),
        "kernels": [kernel | {"units": _units(found.get(number))} for number, kernel in enumerate(kernels)],
        "coded": sorted(found),
        "hot": hot_lines(found, paths),
        "findings": [one.to_json(found, paths) for one in findings(kernels, found, tables)],
        "shapes": sizes,
        "shapes_left_out": sizes_left_out,
        "emulated": overview.is_emulated(run),
        "timeline": timeline(run, numbers, kernels),
        "coverage": overview.coverage(run, numbers),
        "tables": overview.as_in_source(tables),
        "tables_left_out": left_out,
        "written_by": __version__,
    }
    code = {number: one.to_json(paths) for number, one in found.items()}
    shown = read_sources(paths, roots, run.summary.began_ns)
    if places := [one.place for one in shown if one.lines is not None]:
        say(f"luthier report: files in the page: {', '.join(places)}", file=sys.stderr)
    sources = [{"path": one.path, "lines": one.lines, "note": one.note} for one in shown]
    return data, code, sources


def _units(code: ReportedCode | None) -> dict[str, int]:
    """Return how many instructions of each unit waves executed; empty where that is not known."""
    sums: dict[str, int] = {}
    for kind, times in zip(code.columns["kind"], code.executions, strict=False) if code else ():
        if times:
            sums[kind] = sums.get(kind, 0) + times
    return sums


def write_page(run: RunFolder, out: IO[bytes], roots: Sequence[Path] = ()) -> None:
    """Write the page of a run.

    Args:
        run: the run.
        out: where it goes.
        roots: folders where source files may be.

    Raises:
        LuthierError: the run is damaged.
    """
    data, code, sources = document(run, roots)
    scripts = [_uplot("js"), *(_asset(f"{name}.js") for name in _SCRIPTS)]
    pieces = [_piece("run", data), *(_piece(f"code-{number}", one) for number, one in code.items())]
    pieces.append(_piece("sources", sources))
    _assemble("page.html", "Luthier run", scripts, _uplot("css") + _asset("page.css"), pieces, out)


def write_comparison(run: RunFolder, against: RunFolder, out: IO[bytes]) -> None:
    """Write the page of what is different between two runs.

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


def _piece(name: str, value: Any) -> str:
    """Return data in a form that no script can be made of, whatever is in it: base64 of compressed JSON."""
    text = visible_json(strict_json.dumps(value, separators=(",", ":"), default=str))
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return f'<script type="application/octet-stream" id="data-{name}">{packed}</script>'


def _asset(name: str) -> str:
    return (files("luthier.report") / "assets" / name).read_text(encoding="utf-8")


def _uplot(kind: str) -> str:
    """Return uPlot, from the package that brings it along."""
    from youplot.vendor import uplot_css, uplot_js

    return str(uplot_js() if kind == "js" else uplot_css())


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
