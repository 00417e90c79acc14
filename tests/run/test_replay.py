"""Captured launches under tools and checks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from luthier.capture import Capture, read_capture, write_capture
from luthier.capture.grid import chosen
from luthier.capture.minimise import group_count, with_grid

from .conftest import Luthier


def spoil(file: Path, output: Path) -> Path:
    """Write a capture with one changed expected byte."""
    capture = read_capture(file)
    pages = capture.pages.copy()
    pages[int(capture.after["page"][0]), 5] ^= 1
    write_capture(output, msgspec.structs.replace(capture, pages=pages))
    return output


def test_loads_of_arguments_may_read_beyond_them(
    captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path
) -> None:
    """As a load of four words of which three are arguments: the last argument's word is outside of the memory."""
    capture = read_capture(captured("histogram")[0])
    manifest = capture.manifest
    explicit = (argument for argument in manifest.arguments if not argument.kind.startswith("hidden"))
    size = max(argument.offset + argument.size for argument in explicit) - 4
    (pool,) = (place for place in manifest.ranges if 0 <= manifest.kernarg - place[0] < place[1])
    parts = (pool[0], manifest.kernarg - pool[0]), (manifest.kernarg, size)
    ranges = sorted([*(place for place in manifest.ranges if place != pool), *(part for part in parts if part[1])])
    shorter = msgspec.structs.replace(manifest, ranges=ranges)
    write_capture(temporary / "short.lcap", msgspec.structs.replace(capture, manifest=shorter))
    done = luthier("replay", temporary / "short.lcap")
    assert done.returncode == 0, done


# Tools --------------------------------------------------------------------------------------------------------------


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_tools_count_as_the_replay_does(
    captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path, target: str
) -> None:
    files = captured("reduction", target)
    truth = json.loads(luthier("replay", "--json", *files).stdout)
    run = temporary / "run"
    done = luthier("replay", "--json", "-t", "instr_count:per_wave", "-t", "opcode_histogram", "-o", run, *files)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {row["what"] for row in report["replays"]} == {"equal"}
    assert all(a["instructions"] > b["instructions"] for a, b in zip(report["replays"], truth, strict=True))
    tables = {tool["tool"]: tool["tables"] for tool in report["tools"]}
    ((_, counted),) = tables["instr_count"][0]["rows"]
    by_kernel = [table["rows"][-1][1] for table in tables["opcode_histogram"]]
    assert by_kernel == [row["instructions"] for row in truth]
    assert counted == sum(by_kernel)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["exit_code"] == 0
    assert summary["devices"] == [f"emu:{target}"]
    launches = luthier("report", run, "--format", "json")
    assert launches.returncode == 0, launches.stderr
    assert summary["tables"]["launches"] == len(files)
    assert summary["tables"]["kernels"] == len(files)


def test_tools_get_records(captured: Callable[..., list[Path]], luthier: Luthier) -> None:
    done = luthier("replay", "-t", "mem_trace", captured("histogram")[0])
    assert done.returncode == 0, done.stderr
    assert "== mem_trace" in done.stdout
    assert "1 of 1" in done.stdout
    records = [line.split() for line in done.stdout.splitlines()]
    at = records.index(["process", "device", "accesses", "records", "dropped", "lost"])
    # One for each access of an active lane: all bytes of the input, and what 13 work-groups add to 256 bins.
    accesses, pushed, *lost = (int(cell.replace(",", "")) for cell in records[at + 1][2:])
    assert (accesses, lost) == (60000 + 13 * 256, [0, 0])
    assert 0 < pushed < accesses


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["pointers", "stack", "grid_barrier"])
def test_tools_and_calls_back_to_the_original(captured: Callable[..., list[Path]], luthier: Luthier, name: str) -> None:
    files = captured(name)
    done = luthier("replay", "--json", "-t", "instr_count:per_wave", *files)
    report = json.loads(done.stdout)
    assert (done.returncode, {row["what"] for row in report["replays"]}) == (0, {"equal"}), done
    ((_, counted),) = report["tools"][0]["tables"][0]["rows"]
    truth = sum(row["instructions"] for row in json.loads(luthier("replay", "--json", *files).stdout))
    assert counted == truth > 0


def test_a_difference_under_tools_is_told(
    captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path
) -> None:
    spoilt = spoil(captured("histogram")[0], temporary / "spoilt.lcap")
    done = luthier("replay", "-t", "instr_count", spoilt)
    assert done.returncode == 1
    assert "bytes differ" in done.stdout


def test_options_of_tools(captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path) -> None:
    file = captured("histogram")[0]
    for words, message in (
        (["-t", "no_such_tool"], "no_such_tool"),
        (["-t", "instr_count:nothing=1"], "nothing"),
        (["-o", temporary / "run"], "-t"),
        (["-t", "instr_count", "--check", "rase"], "race"),
    ):
        done = luthier("replay", file, *words)
        assert (done.returncode, message in done.stderr) == (1, True), done


def counted_by(report: dict[str, Any]) -> int:
    """Return the count of instr_count in all replays."""
    ((_, counted),) = report["tools"][0]["tables"][0]["rows"]
    return int(counted)


@pytest.mark.thorough
def test_tools_and_checks_together(captured: Callable[..., list[Path]], luthier: Luthier) -> None:
    """Findings in the patched kernel are those of the original, at its addresses."""
    gather, mix = captured("defects")
    truth = json.loads(luthier("replay", "--json", "--check", "race,waits,hazards", mix).stdout)[0]
    words = ["-t", "instr_count:per_wave", "--check", "race,waits,hazards"]
    done = luthier("replay", "--json", *words, mix)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert counted_by(report) == truth["instructions"]
    places = [{text.partition(" (")[0] for text in row["findings"]} for row in (truth, report["replays"][0])]
    assert places[0] == places[1]
    assert len(places[0]) == 2
    done = luthier("replay", *words, gather)
    assert (done.returncode, ": equal, " in done.stdout) == (0, True), done
    done = luthier("replay", "-t", "mem_trace", "--check", "all", captured("histogram")[0])
    assert (done.returncode, ": equal, " in done.stdout) == (0, True), done


@pytest.mark.rows(1)
@pytest.mark.parametrize("device", ["emu:gfx90a", "emu:gfx1030"])
def test_tools_in_other_code(
    captured: Callable[..., list[Path]], build_program: Callable[..., Path], luthier: Luthier, device: str
) -> None:
    files = [*captured("reduction"), captured("reduction")[0]]
    words = ["--with-object", build_program("reduction", "-O3"), "--device", device, *files]
    truth = json.loads(luthier("replay", "--json", *words).stdout)
    done = luthier("replay", "--json", "-t", "instr_count:per_wave", *words)
    report = json.loads(done.stdout)
    assert (done.returncode, {row["what"] for row in report["replays"]}) == (0, {"equal"}), done
    assert counted_by(report) == sum(row["instructions"] for row in truth) > 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["variables", "managed", "stack"])
def test_tools_in_other_code_with_variables(
    captured: Callable[..., list[Path]], build_program: Callable[..., Path], luthier: Luthier, name: str
) -> None:
    words = ["--with-object", build_program(name, "-O3"), *captured(name)]
    truth = json.loads(luthier("replay", "--json", *words).stdout)
    done = luthier("replay", "--json", "-t", "instr_count:per_wave", *words)
    report = json.loads(done.stdout)
    assert {row["what"] for row in report["replays"]} == {row["what"] for row in truth} == {"equal"}
    assert counted_by(report) == sum(row["instructions"] for row in truth) > 0


@pytest.mark.thorough
def test_a_defect_of_other_code_under_tools(
    captured: Callable[..., list[Path]], build_program: Callable[..., Path], luthier: Luthier
) -> None:
    gather = captured("defects")[0]
    wrong = luthier("replay", "-t", "instr_count", "--with-object", build_program("defects", "-DWRONG"), gather)
    assert (wrong.returncode, "1 bytes differ" in wrong.stdout) == (1, True), wrong
    beyond = luthier("replay", "-t", "instr_count", "--with-object", build_program("defects", "-DBEYOND"), gather)
    assert (beyond.returncode, "the program's own" in beyond.stdout) == (1, True), beyond
    other, _ = captured("defects", "gfx1030")
    assert luthier("replay", "-t", "instr_count", gather, "--against", other).returncode == 0


def test_a_folder_that_is_not_empty(captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path) -> None:
    (temporary / "kept").write_text("mine")
    for more in ([], ["--scheduler", "local"]):
        done = luthier("replay", "-t", "instr_count", "-o", temporary, *more, captured("histogram")[0])
        assert (done.returncode, "Traceback" in done.stderr, "error: " in done.stderr) == (1, False, True), done
    assert (temporary / "kept").read_text() == "mine"


def test_a_capture_that_cannot_be_run_under_tools(luthier: Luthier, temporary: Path) -> None:
    (temporary / "damaged.lcap").write_bytes(b"PK")
    done = luthier("replay", "-t", "instr_count", temporary / "damaged.lcap")
    assert (done.returncode, "not a capture" in done.stdout) == (2, True), done


# Checks -------------------------------------------------------------------------------------------------------------


def test_checks_find_what_one_work_group_does(captured: Callable[..., list[Path]], luthier: Luthier) -> None:
    gather, mix = captured("defects")
    done = luthier("replay", "--check", "race,memory", gather)
    assert (done.returncode, "equal" in done.stdout) == (0, True), done
    done = luthier("replay", "--json", "--check", "race", "--check", "waits", mix)
    (row,) = json.loads(done.stdout)
    assert done.returncode == 1
    assert row["what"] == "equal, 2 findings"
    assert all(text.startswith("race in") and "work-group 57" in text for text in row["findings"])
    assert luthier("replay", "--check", "waits,hazards", mix).returncode == 0
    wrong = luthier("replay", "--check", "rase", mix)
    assert wrong.returncode == 1
    assert "did you mean 'race'?" in wrong.stderr


# Other code ---------------------------------------------------------------------------------------------------------


def test_another_build_leaves_the_same_bytes(
    captured: Callable[..., list[Path]], build_program: Callable[..., Path], luthier: Luthier
) -> None:
    files = captured("reduction")
    program = build_program("reduction", "-O3")
    for device in ("emu:gfx90a", "emu:gfx1030"):
        done = luthier("replay", "--json", "--with-object", program, "--device", device, *files)
        rows = json.loads(done.stdout)
        assert (done.returncode, {row["what"] for row in rows}) == (0, {"equal"}), done
        assert all(row["instructions"] != row["recorded_instructions"] for row in rows)
    wrong = luthier("replay", "--with-object", build_program("histogram"), files[0])
    assert wrong.returncode == 2
    assert "no kernel" in wrong.stdout


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["variables", "managed"])
def test_variables_go_with_the_launch(
    captured: Callable[..., list[Path]], build_program: Callable[..., Path], luthier: Luthier, name: str
) -> None:
    done = luthier("replay", "--with-object", build_program(name, "-O3"), *captured(name))
    assert done.returncode == 0, done.stdout


def test_a_defect_is_a_difference_or_a_fault(
    captured: Callable[..., list[Path]], build_program: Callable[..., Path], luthier: Luthier
) -> None:
    gather = captured("defects")[0]
    wrong = luthier("replay", "--with-object", build_program("defects", "-DWRONG", "-g"), gather)
    assert wrong.returncode == 1
    assert "1 bytes differ" in wrong.stdout
    assert "written by global_store" in wrong.stdout
    assert "defects.hip:" in wrong.stdout
    beyond = luthier("replay", "--with-object", build_program("defects", "-DBEYOND"), gather)
    assert beyond.returncode == 1
    assert "is not in the capture" in beyond.stdout
    assert "--all-memory" in beyond.stdout


@pytest.mark.thorough
def test_against(
    captured: Callable[..., list[Path]], luthier: Luthier, build_program: Callable[..., Path], temporary: Path
) -> None:
    gather, mix = captured("defects")
    other, _ = captured("defects", "gfx1030")
    assert luthier("replay", gather, "--against", other).returncode == 0
    spoilt = luthier("replay", gather, "--against", spoil(other, temporary / "spoilt.lcap"))
    assert (spoilt.returncode, "1 bytes differ; " in spoilt.stdout) == (1, True)
    refused = luthier("replay", gather, "--against", mix)
    assert (refused.returncode, "the arguments of " in refused.stdout) == (2, True)
    expected = temporary / "expected"
    expected.write_bytes(np.array([(i * 7919 % 24576 + 20000) * 3 + 1 for i in range(24576)], "<i4").tobytes())
    assert luthier("replay", gather, "--against", f"2={expected}").returncode == 0
    assert luthier("replay", gather, "--against", f"0={expected}").returncode == 1
    assert luthier("replay", gather, "--against", f"3={expected}").returncode == 2
    assert luthier("replay", gather, "--against", "2=/no/such/file").returncode == 2


def test_diff(captured: Callable[..., list[Path]], build_program: Callable[..., Path], luthier: Luthier) -> None:
    first, two = build_program("defects"), build_program("defects", "-DWRONG")
    same = luthier("diff", "--target", "gfx90a", first, first)
    assert (same.returncode, "are equal" in same.stdout) == (0, True), same
    done = luthier("diff", "--target", "gfx90a", "--json", first, two)
    rows = {(row[0], row[1]): row[2:] for row in json.loads(done.stdout)["rows"] if row[2] != row[3]}
    assert done.returncode == 1
    assert {kernel for kernel, _ in rows} == {"_Z6gatherPKiPKjPii"}
    assert rows["_Z6gatherPKiPKjPii", "instructions"][2] > 0
    gather, mix = captured("defects")
    recorded = json.loads(luthier("replay", "--json", gather).stdout)[0]["instructions"]
    done = luthier("diff", "--json", gather, "--with-object", two)
    report = json.loads(done.stdout)
    executed = next(row for row in report["rows"] if row[1] == "executed")
    assert done.returncode == 1
    assert executed[2] == recorded
    assert executed[3] == report["replay"]["instructions"]
    parts = [row for row in report["rows"] if row[1].startswith("executed, ")]
    assert [sum(row[side] for row in parts) for side in (2, 3)] == executed[2:4]
    assert luthier("diff", gather, captured("defects")[0]).returncode == 0
    assert luthier("diff", gather, mix).returncode == 1
    for words in ((first, "/no/such/file"), (first,), (first, gather), (gather, build_program("histogram"))):
        assert luthier("diff", "--target", "gfx90a", *words).returncode == 2, words


# The smallest that fails ----------------------------------------------------------------------------------------------

SMALL = 1 << 16
"""Bytes of memory that remain of any of the planted defects."""


def minimised(luthier: Luthier, file: Path, output: Path, *words: str | Path) -> tuple[Capture, str]:
    """Return the smaller capture and the command's report."""
    done = luthier("minimise", file, "-o", output, *words)
    assert done.returncode == 0, done
    smaller = read_capture(output)
    assert 1 <= group_count(smaller.manifest) <= 4
    assert smaller.pages.nbytes <= SMALL < read_capture(file).pages.nbytes
    return smaller, done.stdout


@pytest.mark.thorough
@pytest.mark.rows
@pytest.mark.parametrize("defect", ["WRONG", "BEYOND"])
def test_minimised_to_where_other_code_fails(
    captured: Callable[..., list[Path]],
    build_program: Callable[..., Path],
    luthier: Luthier,
    temporary: Path,
    defect: str,
) -> None:
    gather, output = captured("defects")[0], temporary / "small.lcap"
    program = build_program("defects", f"-D{defect}")
    smaller, report = minimised(luthier, gather, output, "--with-object", program)
    # in[index[i]] is 31337 where i * 7919 % n is 11337.
    place = next(i for i in range(24576) if i * 7919 % 24576 == 11337)
    assert smaller.manifest.groups == ((place // 256, 0, 0),)
    assert report.startswith("difference" if defect == "WRONG" else "fault")
    assert luthier("replay", output).returncode == 0
    again = luthier("replay", output, "--with-object", program)
    assert again.returncode == 1
    assert ("bytes differ" in again.stdout) == (defect == "WRONG")
    assert f"({place // 256}, 0, 0)" in again.stdout
    assert defect == "WRONG" or f"of work-group {place // 256} " in again.stdout


@pytest.mark.thorough
def test_minimised_to_a_race(captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path) -> None:
    output = temporary / "small.lcap"
    smaller, _ = minimised(luthier, captured("defects")[1], output, "--check", "race")
    assert smaller.manifest.groups == ((57, 0, 0),)
    assert smaller.manifest.grid == (58 * 256, 1, 1)
    assert luthier("replay", output).returncode == 0
    again = luthier("replay", output, "--check", "race").stdout
    assert "race in" in again
    assert "work-group 57 wave" in again


def test_minimised_to_a_byte_that_was_not_recorded(
    captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path
) -> None:
    spoilt = spoil(captured("defects")[0], temporary / "spoilt.lcap")
    output = temporary / "small.lcap"
    smaller, report = minimised(luthier, spoilt, output)
    again = luthier("replay", output)
    assert (again.returncode, "1 bytes differ" in again.stdout) == (1, True)
    where = report.partition("the first is ")[2].partition(" (")[0].splitlines()[0]
    assert where in again.stdout
    assert math.prod(smaller.manifest.grid) <= 24576


def test_nothing_to_minimise(captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path) -> None:
    done = luthier("minimise", captured("defects")[0], "-o", temporary / "small.lcap", "--check", "race")
    assert (done.returncode, "no difference, fault or finding" in done.stderr) == (1, True)
    assert not (temporary / "small.lcap").exists()


def test_parts_of_a_grid_are_whole_work_groups() -> None:
    grid, block = (50, 7, 3), (16, 4, 1)
    everyone = [(x, y, z) for z in range(3) for y in range(2) for x in range(4)]
    parts = list(chosen(everyone, grid, block))
    assert sum(count[0] * items[0] * items[1] * items[2] for _, count, items in parts) == 50 * 7 * 3
    assert next(chosen([(3, 1, 2)], grid, block)) == ((3, 1, 2), (1, 1, 1), (2, 3, 1))
    assert len(list(chosen([(0, 0, 0), (1, 0, 0), (0, 1, 0)], grid, block))) == 2


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_a_smaller_grid_is_what_the_kernel_sees(
    captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path, target: str
) -> None:
    capture = read_capture(captured("reduction", target)[0])
    three = with_grid(capture, (3 * 256, 1, 1))
    write_capture(temporary / "three.lcap", msgspec.structs.replace(three, after=capture.after[:0]))
    numbers = np.arange(50000, dtype=np.int64)
    sums = [numbers[numbers // 256 % 3 == group].sum() for group in range(3)]
    (temporary / "sums").write_bytes(np.array(sums).astype("<u4").tobytes())
    done = luthier("replay", temporary / "three.lcap", "--against", f"1={temporary / 'sums'}")
    assert "the bytes are equal, but the instruction counts differ" in done.stdout, done
