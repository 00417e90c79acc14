"""Run directories: whose they are while they are written, what is in them without tools, what is left out."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from commands import MAIN, run_luthier
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.report.merge import merge
from luthier.run.folder import Claim, RunFolder

LUTHIER = (sys.executable, "-c", MAIN)
TARGET = ("--device", "emu:gfx90a")
Build = Callable[[str], Path]


# Whose it is ----------------------------------------------------------------------------------------------------------

ENDS = ("finish", "discard", "hold")


def _claim(folder: Path, end: str, gate: Any, done: Any, results: Any) -> None:
    gate.wait()
    try:
        with Claim(folder) as claim:
            (folder / "table").touch()
            if end == "hold":
                done.wait(60)
            elif end == "finish":
                claim.finish("{}")
            else:
                (folder / "table").unlink()
            results.put("")
    except LuthierError as problem:
        results.put(str(problem))


@pytest.mark.thorough
@pytest.mark.rows(1)
@pytest.mark.parametrize("end", ENDS)
def test_of_many_that_begin_at_once_one_gets_it(end: str, tmp_path: Path) -> None:
    context, many = multiprocessing.get_context("fork"), 6
    for number in range(10):
        folder = tmp_path / str(number)
        gate, done, results = context.Barrier(many), context.Event(), context.Queue()
        processes = [context.Process(target=_claim, args=(folder, end, gate, done, results)) for _ in range(many)]
        for process in processes:
            process.start()
        outcomes = [results.get(timeout=60) for _ in range(many - (end == "hold"))]
        done.set()
        outcomes += [results.get(timeout=60) for _ in range(many - len(outcomes))]
        for process in processes:
            process.join(60)
        if end != "discard":  # there one may come when another has gone
            assert outcomes.count("") == 1, outcomes
        assert "" in outcomes
        assert all(str(folder) in one for one in outcomes if one)
        if end == "hold":
            assert all("another run is writing to" in one for one in outcomes if one)
        if end == "finish":
            assert sorted(one.name for one in folder.iterdir()) == ["summary.json", "table"]


def test_two_runs_into_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [*LUTHIER, "run", "-o", str(folder), "--", "sh", "-c", "echo ready; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        second = run_luthier("run", "-o", folder, "--", "echo", "second")
        assert (second.returncode, second.stdout) == (1, "")
        assert f"another run is writing to {folder}" in second.stderr
        assert "has not ended, or was killed" in run_luthier("report", folder).stderr
        first.communicate("\n", timeout=60)
    assert first.returncode == 0
    assert RunFolder(str(folder)).summary.command[0] == "sh"
    again = run_luthier("run", "-o", folder, "--", "echo", "third")
    assert (again.returncode, again.stdout) == (1, "")
    assert f"{folder} is not empty: choose another folder, such as {folder}-2" in again.stderr
    with contextlib.chdir(folder), pytest.raises(LuthierError, match=f"is not empty: .* such as {folder}-2$"):
        Claim(Path("."))
    assert RunFolder(folder).summary.command[0] == "sh"


def test_what_a_killed_run_leaves_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [*LUTHIER, "run", "-o", str(folder), "--", "sh", "-c", "echo ready; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        first.kill()
        os.killpg(first.pid, signal.SIGKILL)  # the program, too
    for _ in range(100):
        output = run_luthier("run", "-o", folder, "--", "true").stderr
        if "another run" not in output:
            break
        time.sleep(0.1)
    assert f"{folder} contains the files of a killed run: remove it, or choose another folder" in output
    assert "has not ended, or was killed" in run_luthier("report", folder).stderr


def test_a_run_that_does_not_begin_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for arguments in ((*TARGET, "--", "/no/such/program"), ("-t", "no_such_tool", "--", "true")):
        assert run_luthier("run", "-o", folder, *arguments).returncode == 1
        assert not folder.exists() or not any(folder.iterdir())
    assert run_luthier("run", "-o", folder, "--", "true").returncode == 0


def test_new_folders_are_their_users_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    for folder, mode in ((tmp_path / "above" / "new", 0o700), (shared, 0o750)):
        assert run_luthier("run", "-o", folder, "--", "true").returncode == 0
        assert oct(stat.S_IMODE(folder.stat().st_mode)) == oct(mode)
        out = folder.with_name(f"{folder.name}-merged")
        merge([RunFolder(folder), RunFolder(folder)], out)
        assert oct(stat.S_IMODE(out.stat().st_mode)) == oct(0o700)


@pytest.mark.parametrize("command", [("run", "-o"), ("capture", "-o")])
def test_folders_of_others_are_not_used(command: tuple[str, ...], tmp_path: Path) -> None:
    (open_to_all := tmp_path / "open").mkdir()
    open_to_all.chmod(0o777)
    folders = {open_to_all: "everybody may write there"}
    if os.geteuid() == 0:
        (of_another := tmp_path / "another").mkdir()
        os.chown(of_another, 65534, 65534)
        (link := tmp_path / "link").symlink_to(tmp_path)
        os.lchown(link, 65534, 65534)
        folders |= dict.fromkeys((of_another, link), "it belongs to another user (number 65534)")
    for folder, why in folders.items():
        done = run_luthier(*command, folder, *TARGET, "--", "true")
        assert done.returncode == 1
        assert why in done.stderr
        assert not any(open_to_all.iterdir())


# Without tools --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_tools(build_program: Build, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run directory of a program that ran under no tool, with ``summary.json`` beside; what was printed."""
    folder = tmp_path_factory.mktemp("plain")
    options = ("-o", folder / "run", "--json", folder / "all.json", "--executed", "--mangled")
    ran = run_luthier("run", *options, *TARGET, "--", build_program("processes"))
    assert ran.returncode == 0, ran.stderr
    return folder, ran.stderr


def test_launches_without_tools(without_tools: tuple[Path, str]) -> None:
    folder, _ = without_tools
    run, everything = RunFolder(folder / "run"), json.loads((folder / "all.json").read_text())
    launches = list(run.rows("launches"))
    assert len(launches) == 4
    assert {(row["grid_x"], row["instrumented"], row["kernel"]) for row in launches} == {(64, False, "_Z3addPii")}
    assert sum(row["begin_ns"] is not None for row in launches) == 3
    (kernel,) = run.rows("kernels")
    for row in (kernel, everything["kernels"][0]):
        assert (row["launches"], row["instrumented"], row["reason"]) == (4, 0, "there are no tools")
    assert everything["tools"] == everything["faults"] == run.summary.tools == []
    assert len(everything["processes"]) == len(run.summary.processes) == 4
    assert not any(run.table(name).rows for name in ("sites", "counters", "counts", "listings"))


def test_executed_instructions_are_in_the_results(
    without_tools: tuple[Path, str], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, printed = without_tools
    run, everything = RunFolder(folder / "run"), json.loads((folder / "all.json").read_text())
    assert msgspec.to_builtins(run.summary.executed) == everything["executed"]
    (row,) = (row for row in everything["executed"] if row["kernel"] == "_Z3addPii")
    (cells,) = (line.split() for line in printed.splitlines() if line.split()[:1] == ["_Z3addPii"])
    assert cells[1:] == [f"{row[name]:,}" for name in ("wave_instructions", "lane_instructions")]
    # Three of four processes, because one ends by _exit; each has one wave with all lanes active.
    assert row["wave_instructions"] % 3 == 0
    assert row["lane_instructions"] == 64 * row["wave_instructions"] > 0
    assert row["digest"] == next(run.rows("kernels"))["digest"]
    assert main(["report", str(folder / "run"), "--all", "--mangled"]) == 0
    assert "executed" in (out := capfd.readouterr().out)
    assert str(row["wave_instructions"]) in out
    merge([run, run], tmp_path / "merged")
    merged = RunFolder(tmp_path / "merged").summary.executed
    assert {one.kernel: one.wave_instructions for one in merged or ()} == {
        one.kernel: 2 * one.wave_instructions for one in run.summary.executed or ()
    }


@pytest.mark.parametrize(
    "option",
    [
        *("--kernel=k", "--launches=1", "--unique-grid", "--device-numbers=0", "--preset=once", "--runtime-kernels"),
        *("--hoist", "--no-hoist"),
    ],
)
@pytest.mark.parametrize("output", [[], ["--json", "-"]])
def test_what_is_about_tools_needs_one(option: str, output: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", option, *output, "--", "echo", "program"]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert f"{option.partition('=')[0].replace('--no-', '--')} applies to tools only" in captured.err


@pytest.mark.parametrize("executed", [5, [5], [{}], [{"kernel": 1}], "k", [{"kernel": "k", "object": "o",
    "wave_instructions": "1e9", "lane_instructions": None}]])  # fmt: skip
def test_executed_instructions_of_a_stranger(executed: object, without_tools: tuple[Path, str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(without_tools[0] / "run", folder)
    summary = json.loads((folder / "summary.json").read_text())
    RunFolder(folder)
    (folder / "summary.json").write_text(json.dumps({**summary, "executed": executed}))
    with pytest.raises(LuthierError, match="is damaged"):
        RunFolder(folder)


# Command lines --------------------------------------------------------------------------------------------------------


@pytest.mark.rows(1)
@pytest.mark.parametrize("keep", [True, False])
def test_command_lines_can_be_left_out(keep: bool, build_program: Build, tmp_path: Path) -> None:
    """Neither the folder nor its reports contain them."""
    run, out = tmp_path / "run", tmp_path / "out"
    out.mkdir()
    options = () if keep else ("--no-command",)
    command = ("sh", "-c", '"$0" s3cret; echo pa55word > /dev/null', build_program("graph"))
    ran = run_luthier("run", *options, "-o", run, "--json", out / "all.json", *TARGET, "--", *command)
    assert ran.returncode == 0, ran.stderr
    for format in ("json", "perfetto", "html", "text"):
        assert run_luthier("report", run, "--format", format, "-o", out / format).returncode == 0
    merge([RunFolder(run)], out / "merged")
    texts = {path: path.read_text() for path in (run / "summary.json", out / "merged/summary.json", out / "all.json")}
    texts |= {out / name: (out / name).read_text() for name in ("json", "perfetto", "text")}
    for path, text in texts.items():
        secrets = ["pa55word" in text, "s3cret" in text]
        if path.name == "perfetto":
            assert secrets == [False, keep]
        else:
            assert secrets == [keep, keep], path
    assert RunFolder(run).summary.command == (list(map(str, command)) if keep else [])


# Temporary files ------------------------------------------------------------------------------------------------------

_MOUNTS = {
    "full": 'mount -t tmpfs -o size=16k none "$TMPDIR" && head -c 1M /dev/zero > "$TMPDIR/x" 2> "$TMPDIR.said"; ',
    "read-only": 'mount -t tmpfs -o ro none "$TMPDIR"; ',
}


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("good", ""),
        ("missing", "No such file or directory"),
        ("file", "Not a directory"),
        ("full", "No space left on device"),
        ("read-only", "Read-only file system"),
    ],
)
def test_temporary_folders_that_are_no_good_are_told_first(kind: str, reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    if kind == "file":
        folder.touch()
    elif kind != "missing":
        folder.mkdir()
    command = [*LUTHIER, "run", "--", "sh", "-c", "echo program; echo program >&2"]
    if kind in _MOUNTS:
        script = f'{_MOUNTS[kind]}exec "$@"'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(folder)})
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr}")
    assert (done.returncode, done.stdout) == (0, "program\n")
    warning = f"luthier run: warning: no temporary files can be written to {folder}: {reason}."
    first, *rest = done.stderr.splitlines()
    assert [first, *rest][-1] == "program"
    assert first.startswith(warning) == bool(reason)
    assert len(rest) == bool(reason)
