"""`luthier sanitize` without options: quiet on right programs, and what it finds in wrong ones; what it says it did."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from junitparser import JUnitXml
from luthier.errors import LuthierError
from luthier.findings.annotations import github
from luthier.findings.calls import HostSite
from luthier.findings.causes import Cause, causes
from luthier.findings.collector import FindingSet
from luthier.findings.finding import Finding, NearbyAllocation, Other
from luthier.findings.kinds import CHECKS, SETS, FindingKind, chosen_checks
from luthier.findings.source_text import shown_line
from luthier.findings.text import lines_of, lines_of_cause
from luthier.objects.source import SourceFrame
from luthier.wire.messages import Sighting

from .sanitized import marked_line
from .test_programs import SAYS

Build = Callable[..., Path]
line_of = partial(marked_line, "planted.hip")


def sanitized(log: Path, *words: str | Path) -> tuple[int, dict[str, Any], str]:
    """The exit code of `luthier sanitize`, its JSON, and what it printed on standard error."""
    done = run_luthier("sanitize", "--json", log, *words)
    return done.returncode, json.loads(log.read_text()), done.stderr


# What runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize("name", SAYS)
def test_right_programs_have_no_finding(build_program: Build, tmp_path: Path, name: str, target: str) -> None:
    """Some of these programs do not free their memory: a warning."""
    code, report, text = sanitized(tmp_path / "log", "--device", f"emu:{target}", "--", build_program(name))
    assert {one["kind"] for one in report["findings"]} <= {"leak"}, text
    assert (code, report["exit_code"]) == (0, 0), text
    assert report["checked"]["checks"] == list(SETS["default"])
    assert report["checked"]["launches"] == report["checked"]["observed_launches"] > 0


FAULTS = {
    ("planted", "device", "above", "read"): {"out-of-bounds"},
    ("planted", "device", "leak", "read"): {"leak"},
    ("unordered", "tree", "barrier"): {"race"},
    ("unordered", "partial", "divergent"): {"divergent-barrier"},
    ("unordered", "partial", "ended"): {"missed-barrier"},
    ("undefined", "memory_mask"): {"uninitialised-mask"},
    ("host_errors", "copy"): {"copy-out-of-bounds"},
}
WARNINGS = {"leak", "missed-barrier"}


@pytest.mark.rows(2)
@pytest.mark.parametrize("words", FAULTS, ids=" ".join)
def test_faults_of_all_kinds(build_program: Build, tmp_path: Path, words: tuple[str, ...]) -> None:
    name, *arguments = words
    program = build_program(name, "-g")
    code, report, text = sanitized(tmp_path / "log", "--device", "emu:gfx90a", "--", program, *arguments)
    by_level: dict[str, set[str]] = {"error": set(), "warning": set()}
    for finding in report["findings"]:
        by_level[finding["level"]].add(finding["kind"])
    expected = FAULTS[words]
    assert by_level["error"] == expected - WARNINGS, text
    assert expected & WARNINGS <= by_level["warning"] <= WARNINGS, text
    assert code == int(bool(expected - WARNINGS)), text


def test_words() -> None:
    def checks(*words: str) -> tuple[str, ...]:
        return chosen_checks(words).checks

    default = SETS["default"]
    assert checks() == checks("default") == default
    assert set(checks("-race")) == set(default) - {"race"}
    assert set(checks("all", "-fp")) == CHECKS.keys() - {"fp", "in-flight"}
    assert set(checks("all", "in-flight")) == CHECKS.keys()
    assert checks("memory", "races", "memory") == ("memory", "race")
    assert set(checks("fast")) < set(default)
    assert chosen_checks(["-race"]).named == frozenset()
    assert "leak" in chosen_checks(["all"]).named & chosen_checks(["fast", "leak"]).named
    assert [chosen_checks(words).init for words in ([], ["init"], ["all"])] == [
        "decisions",
        "reads",
        "reads,decisions",
    ]
    assert chosen_checks([], ("race", "waits")).impossible == (
        "memory",
        "leak",
        "init",
        "barrier",
        "early-exit",
        "host",
    )
    assert "leak" not in chosen_checks(["-leak"], ("race", "waits")).impossible
    for wrong, why in ((["memory", "-memory"], "no check to run"), (["-rase"], "did you mean 'race'")):
        with pytest.raises(LuthierError, match=why):
            chosen_checks(wrong)


def test_a_dash_before_a_check(tmp_path: Path) -> None:
    """`--check -race` is one option; the program's own arguments stay as they are."""
    program = "import sys; print(sys.argv[1:])"
    for words, left_out in ((("--check", "-host,-race"), {"host", "race"}), (("--check=-leak",), {"leak"})):
        log = tmp_path / "log"
        done = run_luthier("sanitize", *words, "--json", log, "--", "python3", "-c", program, "--check", "-race")
        assert done.stdout == "['--check', '-race']\n", done
        assert set(SETS["default"]) - set(json.loads(log.read_text())["checked"]["checks"]) == left_out


@pytest.mark.thorough
def test_a_dash_before_a_check_of_captures(build_program: Build, tmp_path: Path) -> None:
    """A set's checks that captures cannot have are named."""
    assert run_luthier("capture", "-o", tmp_path, "--device", "emu:gfx90a", "--", build_program("scan")).returncode == 0
    done = run_luthier("replay", tmp_path, "--check", "-race,-barrier")
    assert done.returncode == 0, done
    assert "luthier: not checked: leak, host: captures are of launches, not of programs" in done.stderr
    assert "not checked: init of decisions" in done.stderr


def test_json_on_standard_error(tmp_path: Path) -> None:
    """As for `luthier run`: standard output is the program's."""
    done = run_luthier("sanitize", "--json", "-", "--", "echo", "started", before=["env", "-C", str(tmp_path)])
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (0, "started\n", [])
    assert json.loads(done.stderr[done.stderr.index("{") :])["schema"] == 1


def test_nothing_ran(tmp_path: Path) -> None:
    files = ["--junit", tmp_path / "junit.xml", "--sarif", tmp_path / "log.sarif"]
    code, report, text = sanitized(tmp_path / "log", *files, "--", "true")
    assert (code, report["checked"]["launches"]) == (0, 0)
    assert "no kernel of the program ran on a virtual device" in text
    assert [row["why"] for row in report["not_checked"]] == ["no kernel of the program ran on a virtual device"]
    assert "no kernel of the program ran" in (tmp_path / "log.sarif").read_text()
    junit = (tmp_path / "junit.xml").read_text()
    assert 'name="race"' not in junit
    assert "no kernel of the program ran" in junit


@pytest.mark.parametrize("check", ["default", "fast", "-race"])
def test_sets_of_checks_under_a_tool(build_program: Build, check: str) -> None:
    words = (
        "-t",
        "instr_count",
        f"--check={check}",
        "--device",
        "emu:gfx90a",
        "--",
        build_program("sequence"),
        "0:1:64:0",
    )
    done = run_luthier("run", *words)
    assert done.returncode == 0, done
    assert "instrumented kernels are not checked by " in done.stderr


@pytest.mark.parametrize(("checks", "level"), [("default", "warning"), ("leak", "error")])
def test_levels_of_sarif(build_program: Build, tmp_path: Path, checks: str, level: str) -> None:
    """As those of JSON: a warning is an error if its check is named."""
    words = (
        "--sarif",
        tmp_path / "log.sarif",
        "--check",
        checks,
        "--device",
        "emu:gfx90a",
        "--",
        build_program("sequence"),
    )
    code, report, _ = sanitized(tmp_path / "log", *words, "0:1:64:0")
    assert code == int(level == "error")
    assert {one["level"] for one in report["findings"]} == {level}
    (run,) = json.loads((tmp_path / "log.sarif").read_text())["runs"]
    assert {result["level"] for result in run["results"]} == {level}


# How much of it runs -------------------------------------------------------------------------------------------------


def test_a_budget(build_program: Build, tmp_path: Path) -> None:
    """The first launch of each size is observed whatever the budget; the others by the same choice each time."""
    launches = ["0:1:64:0"] * 200 + ["0:2:64:0", "1:1:64:0"]
    words = "--device", "emu:gfx90a", "--", build_program("sequence"), *launches
    code, report, text = sanitized(tmp_path / "log", "--budget", "0.001", *words)
    checked = report["checked"]
    assert checked["launches"] == 202
    assert 3 <= checked["observed_launches"] < 70, text
    assert f"{202 - checked['observed_launches']} left out" in text
    races = [one for one in report["findings"] if one["kind"] == "race"]
    assert {one["first_launch"] for one in races} == {200}
    assert code == 1
    observed = {sanitized(tmp_path / "log", "--budget", "600", *words)[1]["checked"]["observed_launches"] for _ in "ab"}
    assert len(observed) == 1
    assert 30 < observed.pop() < 100


def test_bounds_in_launches_that_are_left_out(build_program: Build, tmp_path: Path) -> None:
    program = build_program("planted", "-g")
    words = "--kernel", "absent", "--device", "emu:gfx90a", "--", program, "device", "above", "read"
    code, report, _ = sanitized(tmp_path / "log", *words)
    assert [one["kind"] for one in report["findings"] if one["level"] == "error"] == ["out-of-bounds"]
    assert (code, report["checked"]["observed_launches"]) == (1, 0)


def test_a_selection_without_effect() -> None:
    for words in (["--launches", "1"], ["--budget", "1"], ["--kernel", "k"]):
        done = run_luthier("sanitize", "--check", "memory,leak", *words, "--", "true")
        assert (done.returncode, "have no effect on memory, leak" in done.stderr) == (1, True), done


# What it says --------------------------------------------------------------------------------------------------------


def test_the_line_and_its_column(build_program: Build) -> None:
    program = build_program("planted", "-g")
    os.utime(program)  # it may be of an earlier checkout, whose sources were older
    done = run_luthier("sanitize", "--device", "emu:gfx90a", "--", program, "device", "above")
    lines = done.stderr.splitlines()
    at = next(number for number, line in enumerate(lines) if "// line: read" in line)
    assert f"{line_of('read'):>5} | " in lines[at]
    column = int(lines[at - 1].rpartition(" (")[0].rpartition(":")[2])
    shown, mark = (line.partition(" | ")[2] for line in lines[at : at + 2])
    assert mark == " " * (column - 1) + "^"
    assert shown.startswith("  out[threadIdx.x] = data[at")


def test_lines_that_may_have_moved(tmp_path: Path) -> None:
    source, program = tmp_path / "a b.hip", tmp_path / "built in"
    source.write_text("one\n\tint \N{LATIN SMALL LETTER E WITH ACUTE} = at[i];\n")
    program.touch()
    frame = SourceFrame("k", str(source), 2, 11)  # columns count bytes
    for name in (str(program), f"file://{tmp_path}/built%20in#offset=2&size=3", "memory"):
        os.utime(source, (1, 1))
        line, mark = shown_line(frame, name)
        assert line[mark.index("^") :] == "at[i];"
        os.utime(source, (1 << 32, 1 << 32))
        shown = list(shown_line(frame, name))
        assert (["lines may have moved" in line for line in shown] == [True]) == (name != "memory")
    assert list(shown_line(frame._replace(line=9), "memory")) == []
    assert list(shown_line(frame._replace(file="/dev/zero"), "memory")) == []


def test_files(build_program: Build, tmp_path: Path) -> None:
    program, junit, sarif = build_program("planted", "-g"), tmp_path / "junit", tmp_path / "sarif"
    words = ["--junit", junit, "--sarif", sarif, "--annotations", "github", "--device", "emu:gfx90a"]
    code, report, text = sanitized(tmp_path / "log", *words, "--", program, "device", "above", "read")
    assert code == 1
    suites = JUnitXml.fromfile(str(junit))
    assert (suites.failures, suites.errors) == (1, 0)
    names = {case.get("name"): case for case in ElementTree.parse(junit).iter("testcase")}
    assert names["out-of-bounds"].get("line") == str(line_of("read"))
    assert {"race", "init"} < names.keys()
    assert "memory" not in names
    (annotation,) = (line for line in text.splitlines() if line.startswith("::"))
    assert annotation.startswith("::error title=out-of-bounds,file=")
    assert f",line={line_of('read')}," in annotation
    checked = json.loads(sarif.read_text())["runs"][0]["properties"]["checked"]
    assert checked == report["checked"]


# One entry for a cause -----------------------------------------------------------------------------------------------

FRAME = SourceFrame("k", "/a.hip", 3, 5)


def found(kind: str, offset: int, instruction: str = "global_load_dword v1, v[2:3], off", **more: Any) -> Finding:
    frames = more.pop("frames", (FRAME,))
    return Finding(kind, 1, "k", "app", offset, instruction, frames, size=4, address=0x2000, **more)


def folded(findings: Sequence[Finding]) -> list[tuple[str, int, list[str]]]:
    return [
        (cause.finding.kind, len(cause.repeats), [one.kind for one in cause.consequences]) for cause in causes(findings)
    ]


def test_a_call_in_python_has_a_line_and_no_offset() -> None:
    kind = FindingKind.DOUBLE_FREE
    known = FindingSet([kind.label])
    numbers: dict[str, Any] = dict.fromkeys(Sighting.__struct_fields__, 0)
    for line in (42, 42, 43):
        sites = (HostSite(line, "release", "prog.py", True),)
        known.add(1, Sighting(**numbers | {"kind": kind, "address": 0x1000, "count": 1}), None, calls=sites)
    first, second = known.findings
    assert (first.count, first.offset, second.offset) == (2, 0, 0)
    assert list(lines_of(first))[1:] == ["    source prog.py:42 (release)", "    2 times in all"]
    assert len(causes([first, second])) == 2


def test_what_is_folded() -> None:
    allocation = NearbyAllocation(0x1000, 0x1000, 1)
    outside = partial(found, "out-of-bounds", allocation=allocation)
    unwritten = partial(found, "uninitialised-read", allocation=allocation)
    assert folded([unwritten(8), outside(8), outside(16)]) == [("out-of-bounds", 1, ["uninitialised-read"])]
    assert folded([outside(8), unwritten(12)]) == [("out-of-bounds", 0, []), ("uninitialised-read", 0, [])]
    store = "global_store_dword v[0:1], v2, off"
    assert len(causes([outside(8), outside(12, store)])) == 2, "a read and a write"
    assert len(causes([outside(8), outside(12, frames=())])) == 2, "without a line nothing is known"
    assert len(causes([outside(8), outside(12, frames=(FRAME._replace(line=4),))])) == 2
    races = [found("race", 8, other=Other("app", 4 * at, frames=(FRAME._replace(line=at),))) for at in (1, 2)]
    assert len(causes(races)) == 2, "with accesses of different lines"
    call = {"object": "app", "offset": 64}
    freed, refused = Finding("double-free", 1, **call), Finding("call-error", 1, call="hipFree", **call)
    assert folded([refused, freed]) == [("double-free", 0, ["call-error"])]
    assert folded([refused, Finding("leak", 1, **call)]) == [("call-error", 0, []), ("leak", 0, [])]


def test_text_of_a_cause() -> None:
    cause = Cause(found("race", 8), [found("race", 16)], [found("uninitialised-read", 8)])
    text = "\n".join(lines_of_cause(cause, "warning: "))
    assert text.startswith("warning: race: read of 4 bytes")
    assert "the same at 1 other instruction of the line: 0x10" in text
    assert "from this follows uninitialised-read: " in text


def test_annotations_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", "/work,shop")
    frame = SourceFrame("k", "/work,shop/a:b.hip", 3, 5)
    text = github(Cause(found("race", 8, frames=(frame,))), is_error=False)
    assert text.startswith("::warning title=race,file=a%3Ab.hip,line=3,col=5::race: read of 4 bytes")
    assert "\n" not in text
    assert "%0A" in text


def test_a_limit_of_addresses(build_program: Build, tmp_path: Path) -> None:
    """Without the addresses that decisions need, the others are checked."""
    limit = ["bash", "-c", 'ulimit -v $((20 << 30)) && exec "$@"', "bash"]
    words = ["sanitize", "--json", tmp_path / "log", "--device", "emu:gfx90a", "--", build_program("scan")]
    done = run_luthier(*words, before=limit)
    assert (done.returncode, done.stdout) == (0, SAYS["scan"]), done
    assert "init" not in json.loads((tmp_path / "log").read_text())["checked"]["checks"]
    why = "decisions and lanes need 32 TiB of addresses, which a process may not reserve (ulimit -v"
    assert f"not checked: init: {why}" in done.stderr
    for command in ("sanitize", "run"):
        for options, check in ((["--init", "decisions"], "init"), (["--check", "wave-size"], "wave-size")):
            words = [command, "--check", check, *options, "--", "true"]
            done = run_luthier(*words, before=limit)
            assert (done.returncode, f"{check}: {why}" in done.stderr) == (1, True), done
