"""Coverage of device code as JSON of ``llvm-cov export``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from luthier.report.formats.declare import ReportFormat
from luthier.support import strict_json

if TYPE_CHECKING:
    from luthier.report.coverage import CoveredFunction, DeviceCoverage
    from luthier.run.folder import RunFolder

_TYPE, _VERSION = "llvm.coverage.json.export", "2.0.1"
"""Of LLVM's CoverageExporterJson."""
_CODE_REGION = 0


def write(folder: RunFolder, out: IO[bytes]) -> None:
    """Write files and functions, and print on standard error what is missing.

    A region is a source line, since machine code has no other: columns are 1, and there are no branches, expansions and
    conditions (MC/DC).
    """
    from luthier.report.coverage import device_coverage

    coverage = device_coverage(folder)
    data = {"files": _files(coverage), "functions": [_function(one) for one in coverage.functions if one.lines]}
    every = [count for lines in coverage.files.values() for count in lines.values()]
    document = {"data": [data | {"totals": _summary(every, coverage.functions)}], "type": _TYPE, "version": _VERSION}
    out.write(strict_json.dumps(document).encode() + b"\n")
    coverage.say()


def _files(coverage: DeviceCoverage) -> list[dict[str, Any]]:
    return [
        {
            "branches": [],
            "expansions": [],
            "filename": file,
            "mcdc_records": [],
            "segments": _segments(lines),
            "summary": _summary(list(lines.values()), [one for one in coverage.functions if one.start.file == file]),
        }
        for file, lines in coverage.files.items()
    ]


def _segments(lines: Mapping[int, int]) -> list[list[int | bool]]:
    """Return a segment (line, column, count, has a count, begins a region, is a gap) for each line, and one where lines
    without code follow."""
    segments: list[list[int | bool]] = []
    for line, count in lines.items():
        segments.append([line, 1, count, True, True, False])
        if line + 1 not in lines:
            segments.append([line + 1, 1, 0, False, False, False])
    return segments


def _function(function: CoveredFunction) -> dict[str, Any]:
    files = {place.file: 0 for place in (function.start, *sorted(function.lines))}
    number = {file: at for at, file in enumerate(files)}
    regions = [
        [place.line, 1, place.line + 1, 1, count, number[place.file], 0, _CODE_REGION]
        for place, count in sorted(function.lines.items())
    ]
    return {
        "branches": [],
        "count": function.count,
        "filenames": list(files),
        "mcdc_records": [],
        "name": function.name,
        "regions": regions,
    }


def _summary(lines: Sequence[int], functions: Sequence[CoveredFunction]) -> dict[str, dict[str, float]]:
    """Return numbers of lines, which are the regions, and of functions."""
    line, function = _covered(lines), _covered([one.count for one in functions])
    return {
        "branches": _with_rest(_covered([])),
        "functions": function,
        "instantiations": function,
        "lines": line,
        "mcdc": _with_rest(_covered([])),
        "regions": _with_rest(line),
    }


def _covered(counts: Sequence[int]) -> dict[str, float]:
    covered = sum(count > 0 for count in counts)
    return {"count": len(counts), "covered": covered, "percent": 100 * covered / len(counts) if counts else 0}


def _with_rest(numbers: dict[str, float]) -> dict[str, float]:
    return numbers | {"notcovered": numbers["count"] - numbers["covered"]}


FORMAT = ReportFormat(help="coverage of device code as JSON of `llvm-cov export`", write=write)
