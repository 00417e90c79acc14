"""``luthier run --project``: launches are measured while they run, and projected then or later."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import matplotlib as mpl
import pytest
from luthier import LuthierError, open_run
from luthier.capture.grid import Part, chosen, parts, rest_of
from luthier.projection.kept import (
    WRITTEN,
    MeasuredRun,
    lifted_kernels,
    objects_of,
    project_run,
    read_measured_run,
    write_measured,
)
from luthier.report.analysis import AnalysedRun
from luthier.run.folder import Claim, RunFolder
from msgspec.structs import replace
from run_folders import code, kernel, write_run

from .conftest import Luthier

Captured = Callable[..., list[Path]]


def measured(folder: Path) -> MeasuredRun:
    run = read_measured_run(folder)
    assert run is not None
    return run


@pytest.fixture(scope="module")
def projected(build_program: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run folder of a program with several launches."""
    folder = tmp_path_factory.mktemp("projected") / "RUN"
    words = ["run", "--project", "mi250x,w7800", "-o", str(folder), "--", str(build_program("histogram"))]
    done = commands.run_luthier(*words)
    assert done.returncode == 0, done.stderr
    assert "projected us" in done.stderr
    return folder


def projections(folder: Path, luthier: Luthier, *words: object) -> list[dict[str, Any]]:
    done = luthier("project", "--json", *words, folder)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["projections"]
    return rows


def test_a_run_measures_what_its_captures_do(projected: Path, captured: Captured, luthier: Luthier) -> None:
    """All work-groups of a small launch are measured, with the counts of a replayed capture."""
    kept = measured(projected).projections
    done = luthier("project", "--json", "--groups", "0", "--to", "mi250x", *captured("histogram"))
    by_kernel = {row["kernel"]: row["projections"][0] for row in reversed(json.loads(done.stdout))}
    own = [launch for launch in kept if launch.machine in {row["machine"] for row in by_kernel.values()}]
    assert any(launch.measured_groups == launch.groups for launch in own)
    for launch in own:
        same = by_kernel[launch.kernel]
        assert launch.time_us == pytest.approx(same["time_us"])
        executions = [row["executions"] for row in same["instructions"]]
        assert [row.executions for row in launch.instructions] == executions
    assert {launch.kernel for launch in kept} == set(by_kernel)


def test_samples_of_a_run_are_those_of_its_captures(
    build_program: Callable[..., Path], captured: Captured, luthier: Luthier, tmp_path: Path
) -> None:
    """Sampled work-groups run beside the others, with their counts, in the caches of a replay that samples."""
    program, results = build_program("defects"), tmp_path / "results.json"
    done = luthier("run", "--project", "mi250x", "--json", results, "--", program)
    assert done.returncode == 0, done.stderr
    of_run = json.loads(results.read_text())["projections"]
    of_captures = json.loads(luthier("project", "--json", "--to", "mi250x", *captured("defects")).stdout)
    assert all(16 == row["measured_groups"] < row["groups"] for row in of_run)
    assert len(of_run) == len(of_captures)
    for row, capture in zip(of_run, of_captures, strict=True):
        (same,) = capture["projections"]
        assert (row["kernel"], row["groups"]) == (same["kernel"], same["groups"])
        assert row["time_us"] == pytest.approx(same["time_us"])
        assert row["instructions"] == same["instructions"]


def test_sampled_work_groups_may_wait_for_others(build_program: Callable[..., Path], luthier: Luthier) -> None:
    """A barrier of the whole grid, by an atomic counter, is passed although some work-groups run by themselves."""
    done = luthier("run", "--time-limit", "60", "--project", "mi250x", "--", build_program("persistent"))
    assert done.returncode == 0, done.stderr
    assert "projected us" in done.stderr


def test_the_folder_is_projected_again_without_running(projected: Path, luthier: Luthier) -> None:
    """The default GPUs are those of the run; others need no new run."""
    again = projections(projected, luthier)
    assert [row["time_us"] for row in again] == [one.time_us for one in measured(projected).projections]
    (other,) = {row["machine"] for row in projections(projected, luthier, "--to", "mi300x")}
    assert "MI300X" in other
    words = luthier("project", "--explain", "*", projected).stdout
    assert "waves are resident" in words


@pytest.mark.parametrize("launches", [1, 2])
def test_launches_of_one_size_count_as_the_first(projected: Path, launches: int) -> None:
    run = measured(projected)
    alike = replace(run, launches=(replace(run.launches[0], launches=launches),))
    rows = project_run(alike, lifted_kernels(run, objects_of(projected, run)), places=False).projections
    assert rows
    for row in rows:
        assert any("the others count as if" in note for note in row.notes) == (launches > 1)


def test_report_has_the_projections(projected: Path, luthier: Luthier) -> None:
    page = luthier("report", projected, "--format", "html", "-o", projected.parent / "page.html")
    assert page.returncode == 0, page.stderr
    document = json.loads(luthier("report", projected, "--format", "json").stdout)
    rows = document["projection"]["projections"]
    assert [row["kernel"] for row in rows] == [one.kernel for one in measured(projected).projections]
    assert all(row["roofs"] for row in rows)
    additions = sum(range(1, 41))  # of one of 40 lanes less in each pass of compare-and-swap
    assert {row["operations"] for row in rows if "multiply" in row["kernel"]} == {additions}
    assert {row["operations"] for row in rows if "multiply" not in row["kernel"]} == {0}


def test_merged_runs_have_the_launches_of_all(projected: Path, luthier: Luthier, tmp_path: Path) -> None:
    done = luthier("merge", projected, projected, "-o", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    assert projections(tmp_path / "both", luthier) == 2 * projections(projected, luthier)


def test_calibration(projected: Path, luthier: Luthier, tmp_path: Path) -> None:
    """Numbers are fitted to times that a slower launch would have; the written machine is one that gives them."""
    launches = [one for one in measured(projected).projections if "MI250X" in one.machine]
    times, machine = tmp_path / "times.csv", tmp_path / "mine.toml"
    with times.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kernel", "us"])
        writer.writerows((one.kernel, one.time_us + 5) for one in {one.kernel: one for one in launches}.values())
    words = ["--to", "mi250x", "--calibrate", times, "--fit", "launch_overhead", "-o", machine]
    done = luthier("project", *words, projected)
    assert "mean error over" in done.stdout, done.stderr
    assert "launch_overhead" in done.stdout
    fitted = projections(projected, luthier, "--machine", machine)
    assert all(row["validation"].startswith("fitted to") for row in fitted)
    timed = {row["kernel"]: row["time_us"] for row in fitted}
    assert timed[launches[0].kernel] == pytest.approx(launches[0].time_us + 5, rel=0.15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel,us\nabsent,1\n", "no measured launch of it"),
        ("kernel,us\nabsent,\n", "has no times of launches above 0"),
        ("kernel,us\nabsent,-1\nabsent,0\n", "has no times of launches above 0"),
        ("name,us\nabsent,1\n", "there is no column"),
        ('[{"us": 1}]', "there is no column or number 'kernel'"),
        ("{", "cannot read counters"),
        ("kernel,us\n", "neither counters nor times"),
    ],
)
def test_bad_times(projected: Path, luthier: Luthier, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "times").write_text(text)
    done = luthier("project", "--to", "mi250x", "--calibrate", tmp_path / "times", "-o", tmp_path / "m.toml", projected)
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_refused(projected: Path, build_program: Callable[..., Path], luthier: Luthier) -> None:
    program = build_program("histogram")
    for words, message in (
        (["run", "--project", "mi255", "--", program], "there are mi100"),
        (["run", "--project", "--check", "memory", "--", program], "without --check"),
        (["run", "--project", "-t", "instr_count", "--", program], "without -t"),
        (["project", "--device", "emu:gfx90a", projected], "work with captures"),
        (["project", projected, projected], "name no other file"),
        (["project", "--calibrate", "absent.csv", projected], "-o mine.toml"),
        (["project", "--fit", "clock", projected], "need --calibrate"),
        (["project", "--groups", "4", projected], "work with captures"),
        (["project", "--calibrate", "absent.csv", "-o", "m.toml", "--json", projected], "leave out --json"),
        (["project", "--calibrate", "absent.csv", "-o", "absent/m.toml", projected], "cannot write absent/m.toml"),
        (["profile", "--project", "mi250x", "--", program], "use luthier run"),
    ):
        done = luthier(*words)
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr


def test_damaged_folders(projected: Path, luthier: Luthier, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    done = luthier("project", tmp_path)
    assert (done.returncode, "luthier run --project" in done.stderr) == (1, True), done.stderr
    for text, message in (
        ("{", "is damaged"),
        ('{"schema": 1, "launches": [1]}', "has schema 1"),
        ((projected / "projection.json").read_text(), "cannot read"),
        ((projected / "projection.json").read_text().replace('"digest":"', '"digest":"../'), "not the digest"),
    ):
        (tmp_path / "projection.json").write_text(text)
        done = luthier("project", tmp_path)
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr


def test_a_damaged_file_does_not_hide_the_run(projected: Path, luthier: Luthier, tmp_path: Path) -> None:
    damaged, both = tmp_path / "damaged", tmp_path / "both"
    shutil.copytree(projected, damaged)
    (damaged / "projection.json").write_text("{")
    shown = luthier("report", damaged)
    assert (shown.returncode, "not projected: " in shown.stdout) == (0, True), shown.stderr
    document = json.loads(luthier("report", damaged, "--format", "json").stdout)
    assert "is damaged" in document["projection"]["not_projected"][0]
    merged = luthier("merge", damaged, projected, "-o", both)
    assert merged.returncode == 0, merged.stderr
    assert "is damaged" in measured(both).left_out[0]
    assert len(measured(both).launches) == len(measured(projected).launches)


def test_merged_runs_that_measured_nothing_are_named(projected: Path, luthier: Luthier, tmp_path: Path) -> None:
    plain, both = tmp_path / "plain", tmp_path / "both"
    shutil.copytree(projected, plain)
    (plain / "projection.json").unlink()
    assert luthier("merge", projected, plain, "-o", both).returncode == 0
    assert measured(both).left_out == (f"{plain}: the run measured no launches",)


def test_an_unfinished_run_keeps_nothing(projected: Path, tmp_path: Path) -> None:
    run = measured(projected)
    with Claim(tmp_path / "RUN") as claim:
        claim.added += WRITTEN
        write_measured(tmp_path / "RUN", run, objects_of(projected, run))
    assert list((tmp_path / "RUN").iterdir()) == []


def test_kernels_that_cannot_be_lifted_are_refused_alone(projected: Path) -> None:
    run = measured(projected)
    first, *rest = run.launches
    stray = replace(first, work=replace(first.work, kernel="absent"))
    changed = replace(run, launches=(stray, *rest))
    made = project_run(changed, lifted_kernels(changed, objects_of(projected, run)), places=False)
    assert made.refused[0].startswith("absent: ")
    assert {one.kernel for one in made.projections} == {launch.work.kernel for launch in rest}


def test_cycles_of_one_build_are_not_shown_beside_another(projected: Path, tmp_path: Path) -> None:
    own = code("k", 4)
    rows = {name: [*each, *(row | {"digest": "e"} for row in each)] for name, each in own.items()}
    folder = write_run(tmp_path / "RUN", kernels=[kernel("k"), kernel("k") | {"digest": "e"}], **rows)
    sample = measured(projected).projections[0]
    both = tuple(
        replace(
            sample,
            kernel="k",
            digest=digest,
            instructions=(replace(sample.instructions[0], address=0x1000, stall=stall),),
        )
        for digest, stall in (("d", 10.0), ("e", 70.0))
    )
    write_measured(folder, MeasuredRun(launches=(), projections=both), {})
    analysed = AnalysedRun.of(RunFolder(folder))
    stalls = {
        digest: [
            row["values"][0] for row in analysed.codes[analysed.numbers.of("k", digest)].heat if "stall" in row["name"]
        ]
        for digest in "de"
    }
    assert stalls == {"d": [10.0], "e": [70.0]}


def test_a_roofline_for_notebooks(projected: Path, tmp_path: Path) -> None:
    """Points are the projected operations over bytes and time; kernels without a point are named by number."""
    mpl.use("agg")
    sample = measured(projected).projections[0]
    full = replace(sample, kernel="k", digest="d", launches=2, operations=4e6, memory_bytes=1e6, time_us=10.0)
    folder = write_run(tmp_path / "RUN", kernels=[kernel("k"), kernel("none"), kernel("_private")], **code("k", 4))
    none = replace(full, kernel="none", time_us=0.0, low_us=0.0, high_us=0.0)
    named = replace(full, kernel="_private")
    write_measured(folder, MeasuredRun(launches=(), projections=(full, none, named)), {})
    run = open_run(folder)
    axes = run.roofline()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["k", "_private"]
    point = next(line for line in axes.lines if line.get_marker() == "o")
    assert (list(point.get_xdata()), list(point.get_ydata())) == ([4.0], [400.0])
    assert "1 not drawn" in axes.get_title("left")
    times = {"k": 20.0, "none": 0.0, "_private": 20.0}
    assert [row[:3] for row in run.projections.rows] == [[name, sample.machine, time] for name, time in times.items()]
    with pytest.raises(LuthierError, match=f"not projected on 'x', but on {sample.machine}"):
        run.roofline("x")


def test_a_run_without_launches_says_so(luthier: Luthier, tmp_path: Path) -> None:
    done = luthier("run", "--device", "emu:gfx90a", "--project", "-o", tmp_path / "RUN", "--", "/bin/true")
    assert (done.returncode, "luthier run: no launch was measured" in done.stderr) == (0, True), done.stderr
    again = luthier("project", tmp_path / "RUN")
    assert (again.returncode, "luthier project: no launch was measured" in again.stderr) == (2, True), again.stderr


@pytest.mark.parametrize(
    ("grid", "block"), [((70, 1, 1), (16, 1, 1)), ((70, 33, 5), (16, 4, 2)), ((64, 64, 1), (8, 8, 1))]
)
def test_sampled_parts_and_the_rest_are_the_grid(grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    def groups(places: list[Part]) -> list[tuple[tuple[int, int, int], tuple[int, int, int]]]:
        return [
            ((first[0] + x, first[1] + y, first[2] + z), items)
            for first, counts, items in places
            for x in range(counts[0])
            for y in range(counts[1])
            for z in range(counts[2])
        ]

    every = groups(list(parts(grid, block)))
    sample = sorted((group for group, _ in every), key=lambda group: group[::-1])[1::7]
    taken = groups([*chosen(sample, grid, block), *rest_of(sample, grid, block)])
    assert sorted(taken) == sorted(every)
