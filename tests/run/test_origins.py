"""From where undefined values of findings come: memory, and the stores that copied them, across kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import TARGETS
from .sanitized import findings_of, marked_line

Build = Callable[..., Path]
WAYS = {
    "direct": ("decides", "source", [], True),
    "copied": ("decides", "source", ["copies"], True),
    "again": ("decides", "beside", ["copies"], True),
    "twice": ("decides", "source", ["copies", "adds", "swaps"], True),
    "handed": ("", "source", ["copies", "adds", "swaps"], True),
    "picked": ("picks", "source", [], True),
    "joined": ("joins", "source", [], False),
    "lds": ("reads_lds", "LDS", [], True),
    "local": ("reads_local", "private memory", [], True),
    "register": ("reads_register", "a register", [], True),
    "written": None,
}
"""Way of origins.hip -> line of the decision (none: it is a copy to the host), line of the allocation or what else was
not written, lines of the stores, whether the value can come from nowhere else; None if it is right."""


def lines_of(steps: list[dict[str, Any]]) -> list[int]:
    """Return the lines of steps in the program."""
    return [step["source"]["line"] for step in steps]


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", WAYS)
def test_origins(build_program: Build, tmp_path: Path, way: str, target: str) -> None:
    options = ["--check", "init", "--init", "decisions,copies", "--sarif", str(tmp_path / "sarif")]
    findings = findings_of([build_program("origins", "-g"), way], tmp_path / "log", *options, target=target)
    expected = WAYS[way]
    if expected is None:
        assert findings == []
        return
    line, place, stores, is_certain = expected
    (finding,) = findings
    origin = finding["origin"]
    if line:
        assert finding["source"]["line"] == marked_line("origins.hip", line), finding
    assert (lines_of(origin["copies"]), origin["is_certain"]) == (
        [marked_line("origins.hip", store) for store in stores],
        is_certain,
    ), finding
    if " " in place or place == "LDS":
        assert place in origin["place"], finding
        related = []
    else:
        assert origin["allocated"]["stack"][1]["line"] == marked_line("origins.hip", place), finding
        assert origin["allocation"]["size"] == 1024, finding
        related = [origin["allocated"]["stack"][0]["line"]]
    (result,) = json.loads((tmp_path / "sarif").read_text())["runs"][0]["results"]
    shown = [one["physicalLocation"]["region"]["startLine"] for one in result.get("relatedLocations", [])]
    expected = [*related, *(marked_line("origins.hip", store) for store in stores)]
    assert shown[len(shown) - len(expected) :] == expected, result
