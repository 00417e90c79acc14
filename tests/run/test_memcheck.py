"""The tool memcheck in whole programs: planted bugs, with the virtual device's own check of memory as its oracle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from planted_bugs import Bug, bugs_of

from .conftest import PROGRAMS
from .test_newer_rocm import RELEASE
from .test_planted_bugs import NEWER, SOURCES, TARGETS, Build, before_of, build_planted  # noqa: F401

RULES = ("above", "below", "lds above", "lds below", "size", "free")
FREES = ("double-free", "invalid-free")


def run_both(program: Path, log: Path, target: str, *names: str) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """Run a program under the tool and the device's check together; return the exit code and the findings of both."""
    words = ["run", "-t", "memcheck:top=0", "--check", "memory", "--device", f"emu:{target}"]
    done = run_luthier(*words, "--json", log, "--", program, *names, before=before_of(target))
    report: dict[str, Any] = json.loads(log.read_text())
    assert report["faults"] == [], done
    (tool,) = report["tools"]
    tables = {table["title"].partition(":")[0]: table for table in tool["tables"]}
    # HIP's own kernels fill what is too small, or given back: the tool does not see them.
    own = [one for one in report["findings"] if one["kernel"].startswith("_ZN")]
    return report["exit_code"], own, {title: rows_of(table) for title, table in tables.items()}


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def of_device(findings: list[dict[str, Any]]) -> Counter[tuple[object, ...]]:
    """Return the lanes of the device's findings, by kind and allocation."""
    sums: Counter[tuple[object, ...]] = Counter()
    for finding in findings:
        whole = finding["allocation"] or {"address": 0, "size": 0}
        where = "LDS" if finding["in_lds"] else hex(whole["address"])
        key = bool(finding["kernel"]), finding["kind"], finding["side"], where, whole["size"], finding["size"]
        sums[key] += finding["count"]
    return sums


def of_tool(rows: list[dict[str, Any]]) -> Counter[tuple[object, ...]]:
    """Return the same of the tool's findings."""
    sums: Counter[tuple[object, ...]] = Counter()
    for row in map(joined, rows, [rows] * len(rows)):
        about = row["side"], row["allocation"], row["of bytes"], row["bytes"] or 0
        sums[bool(row["kernel"]), row["kind"], *about] += row["lanes"]
    return sums


def joined(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a row in the device's form: an access across two allocations belongs to the first."""

    def end(finding: dict[str, Any]) -> int:
        return int(finding["allocation"], 16) + int(finding["of bytes"])

    if row["side"] != "before" or row["allocation"] == "LDS":
        return row
    same = [
        one
        for one in rows
        if one["side"] == "after" and all(one[name] == row[name] for name in ("kind", "address", "kernel"))
    ]
    below = [one for one in same if one["allocation"] != "LDS" and end(one) <= int(row["allocation"], 16)]
    return row | {name: max(below, key=end)[name] for name in ("side", "allocation", "of bytes")} if below else row


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "target", [pytest.param(one, marks=[pytest.mark.rocm(RELEASE)] if one == NEWER else []) for one in TARGETS]
)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_planted(build_planted: Build, tmp_path: Path, source: Path, target: str) -> None:  # noqa: F811
    """All bugs of a source in one run: the same as the device finds, each at its line, and none without a bug."""
    bugs = [bug for bug in bugs_of(source.read_text()) if bug.rule in RULES]
    names = ["clean", *(bug.name for bug in bugs)]
    code, findings, tables = run_both(build_planted(source, target), tmp_path / "log", target, *names)
    all_rows = tables["bad accesses"]
    assert code == 0
    assert of_tool(all_rows) == of_device(findings)
    for bug in bugs:
        own_rows = [row for row in all_rows if row["kernel"].startswith(f"_ZN{len(bug.name)}{bug.name}")]
        assert any(is_meant(row, bug, source) for row in own_rows), (bug.rule, bug.line, own_rows)
    assert not any("5clean" in row["kernel"] for row in all_rows)


def is_meant(row: dict[str, Any], bug: Bug, source: Path) -> bool:
    """Return whether a finding is that of a bug."""
    file, _, line = row["source"].rpartition(":")
    return row["kind"] == bug.kind and file.endswith(source.name) and int(line) in bug.lines


@pytest.mark.rows(1)
@pytest.mark.parametrize("container", ["device", "managed", "host"])
def test_alone(build_program: Callable[..., Path], tmp_path: Path, container: str) -> None:
    """The device goes on as without a check, and the run ends as the program does."""
    program, log = build_program("planted", "-g"), tmp_path / "log"
    for bug, kinds in (("none", []), ("above", ["out-of-bounds"]), ("twice", [FREES[0]]), ("inside", [FREES[1]])):
        done = run_luthier("run", "-t", "memcheck", "--json", log, "--", program, container, bug, "write")
        assert (done.returncode, done.stdout) == (0, "done\n"), done
        assert "lost" not in done.stderr
        report = json.loads(log.read_text())
        table, *_ = report["tools"][0]["tables"]
        assert [row["kind"] for row in rows_of(table)] == kinds


@pytest.mark.rows(1)
@pytest.mark.parametrize("options", ["", ":nowhere=false"])
def test_a_fault(build_program: Callable[..., Path], tmp_path: Path, options: str) -> None:
    """The cause of a fault is known although the fault has ended the process."""
    program, log = build_program("faults", "-g"), tmp_path / "log"
    done = run_luthier("run", "-t", f"memcheck{options}", "--json", log, "--", program, "null")
    assert done.returncode == -6, done
    table, *_ = json.loads(log.read_text())["tools"][0]["tables"]
    accesses = [(row["kind"], row["at"], row["access"], row["lanes"]) for row in rows_of(table)]
    assert accesses == ([] if options else [("invalid-address", "0x0", "write", 64)])
    lines = (PROGRAMS / "faults.hip").read_text().splitlines()
    assert all("void outside" in lines[int(row["source"].rpartition(":")[2]) - 1] for row in rows_of(table))
