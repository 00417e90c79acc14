"""`luthier sanitize --check race,init,barrier`: planted bugs are found at their lines, by the right kinds, and nothing
is where there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from luthier.emulator import layout
from luthier.emulator.inspection.uses import use_of
from luthier.findings import suppressions
from luthier.findings.finding import Finding, Other
from luthier.findings.sarif import sarif
from rocm_stacks import stack

from .conftest import PROGRAMS
from .sanitized import findings_of
from .test_newer_rocm import RELEASE, build_newer

__all__ = ["build_newer"]  # a fixture: pytest finds it here
Build = Callable[..., Path]
CHECKS = "race,init,barrier,early-exit"
RACE, UNORDERED, INIT = "race", "unordered-read", "uninitialised-read"
DIVERGENT, MISSED = "divergent-barrier", "missed-barrier"
BUGS: dict[tuple[str, str], set[tuple[str, str, str]]] = {
    ("tree", "barrier"): {(RACE, "tree stores", "tree adds")},
    ("tree", "init"): {(INIT, "tree adds", "")},
    ("histogram", "barrier"): {(RACE, "histogram counts", "histogram clears")},
    ("histogram", "atomic"): {(RACE, "histogram adds", "histogram adds")},
    ("histogram", "late"): {(UNORDERED, "histogram reads", "histogram counts")},
    ("histogram", "init"): {(INIT, "histogram counts", "")},
    ("last_one", "atomic"): {(RACE, "last_one counts", "last_one counts"), (RACE, "last_one adds", "last_one stores")},
    ("locked", "atomic"): {(RACE, "locked adds", "locked adds")},
    ("turns", "atomic"): {(RACE, "turns adds", "turns adds")},
    ("partial", "divergent"): {(DIVERGENT, "partial waits", "partial meets")},
    ("partial", "ended"): {(MISSED, "partial meets", "")},
}
"""Kernel and bug of `unordered.hip` -> kinds, lines, and lines of the other accesses that must be found."""
FURTHER = {
    ("tree", "barrier"): {INIT},  # what is not there yet is read, too
    ("histogram", "barrier"): {INIT},
    ("partial", "divergent"): {RACE},  # the waves meet at different barriers
}
"""Kinds that may be found besides."""
ORDERED = (
    *("own_barrier", "plain_barrier", "shuffles", "one_wave", "buffers", "handed_on", "tickets"),
    *("messages", "published", "bytes", "by_exchange", "set_back", "votes", "streams", "others", "flags"),
    *("wave_turns", "wave_turns_in_memory", "volatile_flag", "relaxed_stores"),
)
"""Programs of `ordered.hip`."""
CLEAN = ("tree", "histogram", "last_one", "look_back", "locked", "turns", "partial")


def lines_of(frames: list[dict[str, Any]]) -> set[str]:
    """Return the names of the marked lines of `unordered.hip` that an instruction is of."""
    text = (PROGRAMS / "unordered.hip").read_text().splitlines()
    own = [text[frame["line"] - 1] for frame in frames if frame["file"].endswith("unordered.hip")]
    return {match[1] for line in own if (match := re.search(r"// line: (.*)", line))}


def look(
    program: Path, log: Path, *arguments: str, target: str, before: list[str], checks: str = CHECKS
) -> list[dict[str, Any]]:
    """Return what is found in a program."""
    return findings_of([program, *arguments], log, "--check", checks, target=target, before=before)


def check(program: Path, log: Path, kernel: str, bug: str, target: str, before: list[str]) -> None:
    """Run one kernel with one bug, and compare what is found."""
    findings = look(program, log, kernel, bug, target=target, before=before)
    expected = BUGS.get((kernel, bug), set())
    pairs = {
        (one["kind"], line, other)
        for one in findings
        for line in lines_of(one["frames"])
        for other in (lines_of(one["other"]["frames"]) or {""} if one["other"] else {""})
    }
    if (kernel, bug) in (("histogram", "barrier"), ("histogram", "late")):  # whichever wave is first
        pairs |= {(kind, other, line) for kind, line, other in pairs}
    assert expected <= pairs, findings
    kinds = {kind for kind, *_ in expected} | FURTHER.get((kernel, bug), set())
    assert {one["kind"] for one in findings} <= kinds, findings
    for finding in findings:
        assert finding["name"].startswith(kernel)
        if finding["kind"] in (RACE, UNORDERED):
            other = finding["other"]
            assert (finding["wave"], finding["group"]) != (other["wave"], other["group"])
            assert finding["address"] <= other["address"] < finding["address"] + finding["size"]
            assert finding["in_lds"] or finding["allocation"]["size"] == 4096


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize(("kernel", "bug"), BUGS)
def test_planted(build_program: Build, tmp_path: Path, kernel: str, bug: str, target: str) -> None:
    check(build_program("unordered", "-g"), tmp_path / "log", kernel, bug, target, [])


def test_the_users_line_is_first(build_program: Build, tmp_path: Path) -> None:
    """HIP's headers, in which `__syncthreads` is, come behind it in text, JSON and SARIF; suppressions are of it."""
    files = {name: tmp_path / name for name in ("json", "sarif", "gen-suppressions")}
    words = [word for name, file in files.items() for word in (f"--{name}", file)]
    words += ["--", build_program("unordered", "-g"), "partial", "divergent"]
    done = run_luthier("sanitize", "--check", "barrier", "--device", "emu:gfx90a", *words)
    (finding,) = json.loads(files["json"].read_text())["findings"]
    line, header = finding["source"]["line"], finding["frames"][0]["file"]
    assert lines_of([finding["source"]]) == {"partial waits"}
    assert header.endswith("device_functions.h")
    assert re.search(
        rf" source \S*unordered\.hip:{line}:.*\n(?:luthier: [ \d]+ \| .*\n)+"
        r"luthier:     with inlined .*\(__syncthreads\)\n",
        done.stderr,
    )
    assert f"with inlined {header}:" in done.stderr
    (result,) = json.loads(files["sarif"].read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == line
    assert files["gen-suppressions"].read_text().endswith(f"unordered.hip:{line}\n")


def test_why_no_line_is_known(build_program: Build, tmp_path: Path) -> None:
    program, log = build_program("unordered"), tmp_path / "log"
    done = run_luthier("sanitize", "--check", "barrier", "--json", log, "--", program, "partial", "divergent")
    (finding,) = json.loads(log.read_text())["findings"]
    assert (finding["source"], finding["no_source"]) == (None, finding["other"]["no_source"])
    assert finding["no_source"].startswith("no debug information; compile with -g")
    assert done.stderr.count(f"    no source line: {finding['no_source']}\n") == 2


@pytest.mark.rows(1)
@pytest.mark.rocm(RELEASE)
@pytest.mark.parametrize(("kernel", "bug"), BUGS)
def test_planted_on_gfx12(build_newer: Build, tmp_path: Path, kernel: str, bug: str) -> None:
    check(build_newer("unordered", "-g"), tmp_path / "log", kernel, bug, "gfx1201", stack(RELEASE))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
@pytest.mark.parametrize("kernel", CLEAN)
def test_without_a_bug(build_program: Build, tmp_path: Path, kernel: str, target: str) -> None:
    check(build_program("unordered", "-g"), tmp_path / "log", kernel, "none", target, [])


@pytest.mark.rocm(RELEASE)
@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("kernel", CLEAN)
def test_without_a_bug_on_newer_targets(build_newer: Build, tmp_path: Path, kernel: str, target: str) -> None:
    check(build_newer("unordered", "-g"), tmp_path / "log", kernel, "none", target, stack(RELEASE))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize("name", ORDERED)
def test_ordered(build_program: Build, tmp_path: Path, name: str, target: str) -> None:
    """There are no findings in programs that order accesses by their own barriers, locks, flags, or streams."""
    if (name, target) == ("votes", "gfx1030"):
        pytest.skip("the assembler of this HIP sets bits of v_permlanex16 that newer LLVM refuses to decode")
    assert look(build_program("ordered", "-g"), tmp_path / "log", name, target=target, before=[]) == []


@pytest.mark.rocm(RELEASE)
@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("name", ORDERED)
def test_ordered_on_newer_targets(build_newer: Build, tmp_path: Path, name: str, target: str) -> None:
    assert look(build_newer("ordered", "-g"), tmp_path / "log", name, target=target, before=stack(RELEASE)) == []


@pytest.mark.rocm(RELEASE)
@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("scopes", ["own", "agent", "everywhere", "workgroup", "mixed"])
def test_scopes(build_newer: Build, tmp_path: Path, scopes: str, target: str) -> None:
    """Atomics of work-group scope used by several work-groups are reported if instructions have scopes."""
    findings = look(build_newer("scopes", "-g"), tmp_path / "log", scopes, target=target, before=stack(RELEASE))
    if target == "gfx942" or scopes not in ("workgroup", "mixed"):
        assert findings == []
        return
    lines = (PROGRAMS / "scopes.hip").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith(f"// line: {scopes}")}
    assert {one["kind"] for one in findings} == {RACE}
    assert all(expected & {frame["line"] for frame in one["frames"]} for one in findings), findings


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_early_exit(build_program: Build, tmp_path: Path, target: str) -> None:
    """In hardware, waves and lanes that have ended do not count at barriers: findings only on request."""
    program, where = build_program("unordered", "-g"), tmp_path / "log"
    for bug in ("ended", "left"):
        for checks, kinds in {"barrier": [], "race,init,barrier": [], "early-exit": [MISSED]}.items():
            findings = look(program, where, "partial", bug, target=target, before=[], checks=checks)
            assert [one["kind"] for one in findings] == kinds
            assert bug == "ended" or not findings or findings[0]["other"]["lane"] % 32 == 250 % 32
    assert look(program, where, "partial", "divergent", target=target, before=[], checks="early-exit") == []


def test_large_allocation(build_program: Build) -> None:
    """Memory that is too large for tracking writes is listed."""
    done = run_luthier("sanitize", "--check", "init", "--", build_program("ordered", "-g"), "large")
    assert done.returncode == 0
    assert f"reads of an allocation of {257 << 20} bytes are not checked by init" in done.stderr


@pytest.mark.parametrize(
    ("mnemonic", "returns", "text", "use"),
    [
        ("global_load_dword", False, "global_load_dword v1, v[2:3], off", 1),
        ("global_load_dword", False, "global_load_dword v1, v[2:3], off glc", 1 | 4),
        ("global_load_dword", False, "global_load_dword v1, v[2:3], off glc slc", 1),
        ("global_load_b32", False, "global_load_b32 v1, v[2:3], off scope:SCOPE_DEV", 1 | 4),
        ("global_store_dword", False, "global_store_dword v[2:3], v1, off sc1", 2 | 4),
        ("global_atomic_add", True, "global_atomic_add v1, v[2:3], v4, off glc", 1 | 2 | 4 | 8),
        ("ds_write_b32", False, "ds_write_b32 v1, v2", 2),
        ("s_load_dword", False, "s_load_dword s0, s[2:3], 0x0", 1),
    ],
)
def test_use(mnemonic: str, returns: bool, text: str, use: int) -> None:
    assert use_of(mnemonic, returns, text) & 0xF == use


def test_load_to_lds() -> None:
    """A load to LDS reads memory and writes LDS."""
    assert use_of("global_load_lds_dword", False, "global_load_lds_dword v[2:3], off") == 1 | 2 << layout.USE_LDS_SHIFT


def test_other_access() -> None:
    """Races of one access with different others are separate findings, also in SARIF and suppressions."""
    first, second = (
        Finding(
            "race", 1, "_Z3sumPf", "object", 4, "ds_write_b32 v1, v2", in_lds=True, size=4, other=Other("object", at)
        )
        for at in (8, 12)
    )
    assert first.key != second.key
    assert suppressions.parse("race sum", "file")[0].fits(first)
    assert "write of 4 bytes at byte 0x0 of LDS" in first.message
    assert sarif([first], "1")["runs"][0]["results"][0]["properties"]["other"]["offset"] == 8


def test_levels() -> None:
    """A read beside an atomic may be meant; a race may not."""
    findings = [Finding(kind, 1, "_Z3sumPf", "object", 4, "ds_read_b32 v1, v2", size=4) for kind in (RACE, UNORDERED)]
    assert [result["level"] for result in sarif(findings, "1")["runs"][0]["results"]] == ["error", "warning"]
