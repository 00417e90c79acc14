"""`luthier lift`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from luthier.cli.main import main
from luthier.lifting import lift
from luthier.objects import CodeObject


def test_text(compiled: Callable[..., CodeObject], capsys: pytest.CaptureFixture[str]) -> None:
    path = compiled("gfx90a", "calls.hip").name
    assert main(["lift", path, "--kernel", "calls", "--instructions", "--registers"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("kernel calls: gfx90a, wave64, 3 functions, ")
    assert "\nfunction 1 _Z6middlefi at " in out
    assert "s_swappc_b64 s[30:31], s[" in out
    assert main(["lift", path]) == 0
    assert capsys.readouterr().out.count("\nkernel ") == 13


def test_json(compiled: Callable[..., CodeObject], capsys: pytest.CaptureFixture[str]) -> None:
    code_object = compiled("gfx1100", "calls.hip")
    assert main(["lift", code_object.name, "-k", "from_variable", "-k", "calls", "--json"]) == 0
    calls, unknown = json.loads(capsys.readouterr().out)  # in the order of the object
    lifted = lift(code_object, "calls")
    assert calls["kernel"] == "calls"
    assert calls["unknown"] == []
    assert [one["name"] for one in calls["functions"]] == [function.name for function in lifted.functions]
    assert len(calls["blocks"]) == len(lifted.blocks)
    assert sum(block["instructions"] for block in calls["blocks"]) == calls["instructions"]
    assert calls["blocks"][0]["live_in"]["vector_active"] >= 1
    assert "may change at run time" in unknown["unknown"][0]["reason"]
    assert not unknown["functions"][0]["calls"][0]["known"]


def test_errors(compiled: Callable[..., CodeObject], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lift", compiled("gfx90a", "calls.hip").name, "--kernel", "nothing"]) == 1
    assert "no kernel matches 'nothing'" in capsys.readouterr().err
    assert main(["lift", "/no/such/file"]) == 1
    assert capsys.readouterr().err.startswith("luthier lift: error: ")
