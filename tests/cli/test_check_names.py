"""A check has one name: on every command, in the API, in the documents, and in what shipped tools find."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from commands import run_luthier
from luthier.cli.findings import HELP, check_names
from luthier.errors import LuthierError
from luthier.findings.kinds import (
    CHECKS,
    DEVICE_CHECKS,
    EARLIER_CHECKS,
    KINDS,
    SETS,
    FindingKind,
    kinds_of_check,
    named_checks,
)
from luthier.hazards.checks import CHECKS as STATIC_CHECKS
from luthier.wire.spelling import enumeration

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", *ROOT.glob("examples/tools/*/README.md")])
COMMANDS = {
    "run": ("--", "true"),
    "sanitize": ("--", "true"),
    "replay": ("absent.lcap",),
    "minimise": (__file__, "-o", "absent"),
    "check": ("absent",),
}
"""Commands with ``--check``, and what else they need."""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_the_same_checks(command: str) -> None:
    done = run_luthier(command, "--check", "rase", *COMMANDS[command])
    assert done.returncode
    allowed = re.search(r"(?:there are: |choose from )([^)]*)", done.stderr)
    assert allowed is not None, done.stderr
    assert set(re.findall(r"[a-z-]+", allowed[1])) - SETS.keys() <= CHECKS.keys()


def test_devices_and_static_checks_have_their_names() -> None:
    assert set(DEVICE_CHECKS) <= CHECKS.keys()
    assert set(STATIC_CHECKS.names()) <= CHECKS.keys()
    assert all(f"{check}: " in HELP for check in CHECKS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documents_name_them(page: Path) -> None:
    if page.name == "extending.md":  # if a package adds one
        return
    for written in re.findall(r"--checks?[ =](-?[a-z][a-z,-]*)", page.read_text()):
        assert {name.removeprefix("-") for name in written.split(",") if name} <= {*CHECKS, *SETS}, written
    for written in re.findall(r"\bcheck=\[?((?:\"[a-z-]+\"(?:, )?)+)", page.read_text()):
        assert set(re.findall(r"[a-z-]+", written)) <= CHECKS.keys(), written


def test_pages_list_every_kind() -> None:
    pages = "".join((ROOT / page).read_text() for page in ("docs/sanitize.md", "docs/checking.md"))
    assert not [kind for kind in KINDS if f"`{kind}`" not in pages]


def test_each_kind_is_of_one_check() -> None:
    assert {kind.check for kind in KINDS.values()} == CHECKS.keys()
    assert all(kinds_of_check(check) for check in CHECKS)
    fp_check, memcheck = (importlib.import_module(f"luthier_{tool}") for tool in ("fp_check", "memcheck"))
    assert {*fp_check.KINDS, *memcheck.BAD_FREES.values()} <= KINDS.keys()
    assert memcheck.BAD_FREES.keys() <= set(FindingKind)


def test_native_code_has_the_numbers() -> None:
    lines = list(enumeration(FindingKind, "uint64_t"))
    assert "  kUninitialised = 8," in lines
    assert len(lines) == len(FindingKind) + 2


def test_commands_go_on_with_present_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_names("bounds,leak,races") == ["memory", "leak", "race"]
    assert capsys.readouterr().err.count("is now named") == 2


@pytest.mark.parametrize("name", EARLIER_CHECKS)
def test_earlier_names(name: str) -> None:
    assert named_checks([name, EARLIER_CHECKS[name]]) == (EARLIER_CHECKS[name],)
    with pytest.raises(LuthierError, match="choose from waits"):
        named_checks([name], ("waits",))
    done = run_luthier("replay", "--check", name, "absent.lcap")
    assert f"the check {name} is now named {EARLIER_CHECKS[name]}" in done.stderr
