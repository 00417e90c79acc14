"""Checks of `luthier check` that packages add."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from luthier.cli.main import main
from luthier.hazards.checks import CHECKS
from planted import plant
from wait_kernels import kernel

CODE = """
from dataclasses import dataclass

from luthier import Check, CheckReport
from luthier.errors import LiftError


@dataclass(frozen=True)
class Sleep:
    kernel: str
    address: int

    def __str__(self):
        return f"{self.kernel}: {self.address:#x} sleeps"

    def to_json(self):
        return {"kernel": self.kernel, "address": self.address}


def sleeps(lifted):
    found = [Sleep(lifted.kernel.name, one.address) for one in lifted.instructions if one.mnemonic == "s_sleep"]
    return CheckReport(findings=found)


def refuses(lifted):
    raise LiftError("sleeps too deeply", kernel=lifted.kernel.name)


SLEEPS = Check(help="instructions that sleep", run=sleeps)
REFUSES = Check(help="none", run=refuses)
TAKES_A_KEY = Check(help="none", run=lambda lifted: CheckReport(findings=(), data={"findings": 3}))
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``add(points, code)``: a package with checks."""
    return lambda points, code=CODE: plant(tmp_path, monkeypatch, "luthier.checks", points, code)


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """``check(body, *options)``: the exit status of the command, and what it printed."""

    def run(body: str, *options: str) -> tuple[int, str, str]:
        path = tmp_path / "k.co"
        path.write_bytes(kernel("gfx906", body).data)
        status = main(["check", str(path), *options])
        return status, *capsys.readouterr()

    return run


def test_a_package_adds_a_check(add: Callable[..., None], check: Run) -> None:
    before = json.loads(check("s_nop 0; s_sleep 1", "--json")[1])["kernels"][0]
    add("sleeps = other_one:SLEEPS")
    assert CHECKS.names() == ("waits", "hazards", "memory", "race", "sleeps")
    status, output, _ = check("s_nop 0; s_sleep 1")
    assert status == 1
    assert "sleeps\n" in output
    assert "1 kernel of 3 instructions checked: 1 finding; 0 waits and 1 s_nop that no path needs" in output
    status, output, _ = check("s_nop 0; s_sleep 1", "--json")
    (checked,) = json.loads(output)["kernels"]
    (sleep,) = checked.pop("sleeps")
    assert sleep["kernel"] == "k"
    assert checked == before
    assert check("s_nop 0")[0] == 0


def test_one_check_alone(add: Callable[..., None], check: Run) -> None:
    add("sleeps = other_one:SLEEPS")
    missing = "global_load_dword v10, v[2:3], off; v_mov_b32 v1, v10; s_sleep 1"
    assert check(missing, "--check", "hazards")[0] == 0
    status, output, _ = check(missing, "--check", "sleeps")
    assert status == 1
    assert "1 kernel of 4 instructions checked: 1 finding\n" in output
    status, output, _ = check(missing, "--check", "waits", "--json")
    assert status == 1
    assert json.loads(output)["kernels"][0].keys() == {
        *("target", "kernel", "instructions", "unchecked", "findings", "unneeded")
    }


def test_help_completion_and_an_unknown_one(
    add: Callable[..., None], check: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    add("sleeps = other_one:SLEEPS")
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert "sleeps: instructions that sleep" in " ".join(capsys.readouterr().out.split())
    assert main(["completion", "bash"]) == 0
    assert "sleeps" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        check("s_nop 0", "--check", "snores")
    errors = capsys.readouterr().err
    assert all(name in errors for name in ("'snores'", "waits", "hazards", "sleeps"))


def test_a_broken_one_is_told_and_the_others_work(add: Callable[..., None], check: Run) -> None:
    """What was not checked is no success."""
    add("bad = nowhere:IT\nsleeps = other_one:SLEEPS")
    status, output, errors = check("s_nop 0; s_sleep 1")
    assert status == 1
    assert "sleeps\n" in output
    (line,) = errors.splitlines()
    assert line.startswith("NOT CHECKED: check bad of other-one (nowhere:IT) cannot be imported: ModuleNotFound")
    status, output, _ = check("s_nop 0", "--json")
    assert status == 1
    data: dict[str, Any] = json.loads(output)
    assert len(data["checks_not_done"]) == len(data["kernels"]) == 1
    status, _, errors = check("s_nop 0", "--check", "bad")
    assert status == 1
    assert "check bad of other-one" in errors
    assert check("s_nop 0", "--check", "waits")[0] == 0


def test_what_it_refuses_is_not_checked(add: Callable[..., None], check: Run) -> None:
    add("refuses = other_one:REFUSES")
    status, _, errors = check("s_nop 0")
    assert status == 1
    assert "k: NOT CHECKED: sleeps too deeply" in errors


def test_data_that_another_check_has_is_an_error(add: Callable[..., None], check: Run) -> None:
    add("thief = other_one:TAKES_A_KEY")
    status, _, errors = check("s_nop 0", "--json")
    assert status == 1
    assert "check thief and an earlier check both have data findings" in errors


def test_a_check_called_as_a_built_in_one_is_an_error(add: Callable[..., None], check: Run) -> None:
    add("waits = other_one:SLEEPS")
    status, _, errors = check("s_nop 0")
    assert status == 1
    assert "check waits is defined by several packages: luthier and other-one" in errors
