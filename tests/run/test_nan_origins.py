"""From where NaN of findings comes: the operation that made it, the stores that passed it on, and the load."""

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
    "direct": ("adds", "difference", ["stores"]),
    "copied": ("adds", "difference", ["stores", "copies"]),
    "lds": ("swaps", "difference", ["stores", "to_lds"]),
    "wide": ("adds_wide", "difference_wide", ["stores_wide"]),
    "alone": ("alone", "nothing", []),
    "given": ("adds", "", []),
    "overwritten": ("adds", "", []),
    "stored_over": ("adds", "", []),
}
"""Way of nans.hip -> kernel and line that pass NaN on; line that makes it ("": the host did); lines of the stores."""


def line_of(step: dict[str, Any]) -> int:
    """Return the line of a step in the program."""
    line: int = step["source"]["line"]
    return line


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", WAYS)
def test_origins(build_program: Build, tmp_path: Path, way: str, target: str) -> None:
    kernel, made, stores = WAYS[way]
    options = ["--check", "fp", "--fp", "nan,flow", "--sarif", str(tmp_path / "sarif")]
    findings = findings_of([build_program("nans", "-g"), way], tmp_path / "log", *options, target=target)
    flows = [finding for finding in findings if finding["kind"] == "nan-flow"]
    (flow,) = flows
    assert (flow["name"], flow["count"]) == (kernel, 1), flow
    assert line_of(flow) == marked_line("nans.hip", kernel), flow
    origin = flow["origin"]
    if not made:
        assert origin is None, flow
        return
    assert line_of(origin["made"]) == marked_line("nans.hip", made), origin
    assert [line_of(store) for store in origin["copies"]] == [marked_line("nans.hip", store) for store in stores]
    assert origin["is_certain"] is not bool(stores), origin  # the host may have written it, too
    if not stores:
        assert origin["loaded"] is None
        return
    assert line_of(origin["loaded"]) == marked_line("nans.hip", kernel), origin
    (nan,) = (finding for finding in findings if finding["kind"] == "nan")
    assert (origin["made"]["offset"], origin["made"]["kernel"]) == (nan["offset"], nan["kernel"])
    results = json.loads((tmp_path / "sarif").read_text())["runs"][0]["results"]
    (result,) = (result for result in results if result["ruleId"] == "nan-flow")
    steps = [place["physicalLocation"]["region"]["startLine"] for place in result["relatedLocations"]]
    assert steps == [marked_line("nans.hip", mark) for mark in (made, *stores)]
