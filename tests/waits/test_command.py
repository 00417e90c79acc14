"""`luthier check`: what it prints, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from luthier.cli.main import main
from wait_kernels import kernel

LOAD, USE = "global_load_dword v10, v[2:3], off", "v_mov_b32 v1, v10"
GOOD, BAD = f"{LOAD}; s_waitcnt vmcnt(0); {USE}; s_waitcnt vmcnt(0)", f"{LOAD}; {USE}"


@pytest.fixture
def file(tmp_path: Path):
    def write(body: str) -> str:
        path = tmp_path / "k.co"
        path.write_bytes(kernel("gfx906", body).data)
        return str(path)

    return write


def test_nothing_found(file, capsys) -> None:
    assert main(["check", file(GOOD), "--unneeded"]) == 0
    printed = capsys.readouterr().out
    assert "not needed" in printed
    assert "1 kernel of 5 instructions checked: 0 findings; 1 waits and 0 s_nop that no path needs" in printed


def test_a_finding_is_exit_status_1(file, capsys) -> None:
    assert main(["check", file(BAD), "--json"]) == 1
    (checked,) = json.loads(capsys.readouterr().out)["kernels"]
    (finding,) = checked["findings"]
    assert finding["registers"] == ["v10"]
    assert (finding["counter"], finding["enough"], finding["access"]) == ("vmcnt", 0, "reads")
    assert finding["consumer"]["text"] == "v_mov_b32_e32 v1, v10"


def test_what_cannot_be_checked_is_no_success(file, capsys) -> None:
    assert main(["check", file("s_cbranch_join s4")]) == 1
    assert "NOT CHECKED" in capsys.readouterr().err
    assert main(["check", file("s_cbranch_join s4"), "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    assert not output["kernels"]
    assert output["not_checked"][0]["kernel"] == "k"


def test_no_such_file_or_kernel(file, capsys, tmp_path: Path) -> None:
    assert main(["check", str(tmp_path / "nothing")]) == 1
    assert main(["check", file(GOOD), "-k", "nowhere"]) == 1
    assert "no kernel matches 'nowhere'" in capsys.readouterr().err


def test_sarif(file, tmp_path) -> None:
    """Each finding has its rule, its kernel and its sentence; what SARIF cannot have is a note."""
    body = "global_load_dword v10, v[2:3], off; v_mov_b32 v1, v10; v_rcp_f32 v4, v3; s_nop 0; v_readlane_b32 s4, v9, s9"
    path = tmp_path / "log.sarif"
    assert main(["check", str(file(body)), "--sarif", str(path)]) == 1
    (run,) = json.loads(path.read_text())["runs"]
    assert run["tool"]["driver"]["name"] == "luthier check"
    (result,) = (each for each in run["results"] if each["ruleId"] == "missing-wait")
    assert result["message"]["text"] == "missing-wait: reads v10; vmcnt(0) before it is enough"
    assert result["locations"][0]["logicalLocations"][0]["name"] == "k"
    assert result["properties"]["other"]["instruction"].startswith("global_load_dword v10")
