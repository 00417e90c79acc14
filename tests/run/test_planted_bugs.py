"""`luthier sanitize`: every bug that rules plant in programs is found at its line by the right kind, and no other."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from kept import ROOT, kept, version
from kept import run as run_command
from planted_bugs import OUTSIDE, Bug, bugs_of, together
from rocm_stacks import stack

from luthier_build.workspace import digest

from .conftest import PROGRAMS
from .test_newer_rocm import RELEASE

OTHERS = ("saxpy", "histogram", "reduction", "scan", "transpose", "fourier", "physics")
"""Programs that other tests have, too."""
SOURCES = [*sorted((PROGRAMS / "planted").glob("*.hip")), *(PROGRAMS / f"{name}.hip" for name in OTHERS)]
NEWER = "gfx1201"
TARGETS = ("gfx90a", "gfx1030", NEWER)
"""One a family; the last is of the newer HIP."""
NOWHERE = "invalid-address"
UNORDERED = "unordered-read"
HIP_S_OWN = "HIP"
CHECKS = "memory,race,init,barrier"
Build = Callable[[Path, str], Path]


def before_of(target: str) -> list[str]:
    """Return what comes before a command that has to do with a target."""
    return stack(RELEASE) if target == NEWER else []


@pytest.fixture(scope="session")
def build_planted() -> Build:
    """``build_planted(source, target)``: a program that has all bugs of a source, and the source without one."""

    def build(source: Path, target: str) -> Path:
        text = together(source, bugs_of(source.read_text()))
        targets = [target] if before_of(target) else TARGETS[:2]
        offload = [f"--offload-arch={one}" for one in targets]
        command = [*before_of(target), "env", "HIP_PLATFORM=amd", "hipcc", *offload, "-O1", "-w", "-gline-tables-only"]
        key = "planted", version("hipcc"), *command, text, digest(PROGRAMS / "check.h")

        def make(output: Path) -> None:
            generated = output.with_suffix(".hip")
            generated.write_text(text)
            run_command([*command, "-I", str(PROGRAMS), str(generated), "-o", str(output)])

        return kept(key, make, source.stem)

    return build


def findings_by_bug(program: Path, log: Path, target: str, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return what is found, by the bug's name; where one faults, the rest runs in another process."""
    words = ["sanitize", "--check", CHECKS, "--device", f"emu:{target}", "--json", log]
    findings: dict[str, list[dict[str, Any]]] = {name: [] for name in [*names, HIP_S_OWN]}
    while names:
        done = run_luthier(*words, "--", program, *names, before=before_of(target))
        report: dict[str, Any] = json.loads(log.read_text())
        for finding in report["findings"]:
            namespace = re.match(r"_ZN\d+(clean|bug\d+x)", finding["kernel"])
            # HIP's own kernels fill what is too small, or given back.
            findings[namespace[1] if namespace else HIP_S_OWN].append(finding)
        if report["exit_code"] == 0:
            assert done.stdout.endswith("done\n"), done
            break
        (faulted,) = (name for name in names if any(one["kind"] == NOWHERE for one in findings[name]))
        assert report["exit_code"] == -6, done
        names = names[names.index(faulted) + 1 :]
    return findings


def lines_of(frames: list[dict[str, Any]], source: Path) -> set[int]:
    """Return the lines of a source that an instruction is of, with those that it is inlined at."""
    return {frame["line"] for frame in frames if frame["file"].endswith(source.name)}


def is_meant(finding: dict[str, Any], bug: Bug, source: Path) -> bool:
    """Return whether a finding is that of a bug."""
    places = [finding["frames"], *([finding["other"]["frames"]] if bug.kind == "race" and finding["other"] else [])]
    side = {"above": "after", "below": "before"}.get(bug.rule.rpartition(" ")[2], finding["side"])
    # What is in front of an allocation differs from run to run: other memory, or none.
    kinds = {bug.kind, *{"below": [NOWHERE], "barrier": [UNORDERED]}.get(bug.rule, [])}
    if bug.rule.startswith("lds") and not finding["in_lds"]:
        return False
    at_lines = all(lines_of(each, source) & bug.lines for each in places)
    return finding["kind"] in kinds and finding["side"] == side and at_lines


def follows(finding: dict[str, Any], bug: Bug, source: Path) -> bool:
    """Return whether a finding is of what a bug leads to."""
    follows = finding["kind"] in (NOWHERE, OUTSIDE) and lines_of(finding["frames"], source) & bug.faults
    return finding["kind"] in bug.further or bool(follows)


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "target", [pytest.param(one, marks=[pytest.mark.rocm(RELEASE)] if one == NEWER else []) for one in TARGETS]
)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_all(build_planted: Build, tmp_path: Path, source: Path, target: str) -> None:
    bugs = bugs_of(source.read_text())
    names = ["clean", *(bug.name for bug in bugs)]
    findings = findings_by_bug(build_planted(source, target), tmp_path / "log", target, names)
    assert findings["clean"] == []
    assert {one["kind"] for one in findings[HIP_S_OWN]} <= {OUTSIDE}
    missed = [bug for bug in bugs if not any(is_meant(one, bug, source) for one in findings[bug.name])]
    false = [
        (bug.name, one["kind"], one["frames"])
        for bug in bugs
        for one in findings[bug.name]
        if not is_meant(one, bug, source) and not follows(one, bug, source)
    ]
    rest = [
        f"{bug.rule} at line {bug.line}: {[(one['kind'], one['side'], one['frames']) for one in findings[bug.name]]}"
        for bug in missed
    ]
    assert (rest, false) == ([], [])


def test_the_documented_table() -> None:
    """The table has all cases and claims that all are found; another test checks each case."""
    counts = Counter(bug.rule for source in SOURCES for bug in bugs_of(source.read_text()))
    text = (ROOT / "docs/sanitize-evidence.md").read_text()
    rows = re.findall(r"^\| .*? \| .*? \| (\d+) \| (\d+) \| 0 \| 0 \|$", text, re.MULTILINE)
    cases_of = sorted(int(cases) for cases, found in rows if cases == found)
    assert cases_of == sorted(len(TARGETS) * count for count in (*counts.values(), counts.total()))
    assert f"none, {len(SOURCES)} programs | | {len(SOURCES) * len(TARGETS)} " in text
