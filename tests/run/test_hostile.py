"""Hostile programs and run folders: each is refused in a sentence, and the honest program beside runs to its end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hostile_messages
import pytest
from commands import run_luthier
from luthier.cli.main import main
from luthier.run.folder import SUMMARY, RunFolder
from run_folders import code, kernel, launch, write_run

# Programs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answers(build_program: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """Return the service's message for each act of a hostile program; an honest one ran in parallel and afterwards."""
    folder, program = tmp_path_factory.mktemp("hostile"), build_program("graph")
    script = f"{program} & {sys.executable} {hostile_messages.__file__} {folder}/answers; {program}; wait $!"
    done = run_luthier("run", "-t", "instr_count", "-o", folder / "run", "--executed", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "graph 125\n" * 2), done
    assert "Traceback" not in done.stderr, done.stderr
    counters = {row["process"]: row["unsigned"] for row in RunFolder(folder / "run").rows("counters")}
    assert len(counters) == 2
    assert len({tuple(one) for one in counters.values()}) == 1, counters
    return dict(json.loads(line) for line in (folder / "answers").read_text().splitlines())


@pytest.mark.parametrize("act", hostile_messages.ACTS)
def test_messages(act: str, answers: Mapping[str, list[str]]) -> None:
    for answer in answers[act]:
        assert re.match(hostile_messages.ACTS[act].answers, answer), answer
        assert "\n" not in answer
        assert "failed" not in answer


# Run folders ----------------------------------------------------------------------------------------------------------


def _summary(**changes: Any) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        (run / SUMMARY).write_text(json.dumps(json.loads((run / SUMMARY).read_text()) | changes))

    return change


def _instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        (run / name).unlink()
        make(run / name)

    return change


def _sparse(size: int) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return make


def _link_elsewhere(path: Path) -> None:
    """To what was there, but in another folder."""
    other = path.parents[1] / f"other-{path.name}"
    shutil.copy(path.parents[1] / "copy" / path.name, other)
    path.symlink_to(other)


DEEP = "[" * 100_000 + "]" * 100_000
FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "the summary is a link": (_instead(SUMMARY, _link_elsewhere), "it is a link"),
    "a table is a link": (_instead("kernels.parquet", _link_elsewhere), "it is a link"),
    "a table leads through /proc": (
        _instead("kernels.parquet", lambda path: path.symlink_to("/proc/self/environ")),
        "it is a link",
    ),
    "the summary is a FIFO": (_instead(SUMMARY, os.mkfifo), "is not a regular file"),
    "a table is a FIFO": (_instead("launches.parquet", os.mkfifo), "is not a regular file"),
    "a table is a folder": (_instead("launches.parquet", Path.mkdir), "is not a regular file"),
    "the summary is a device": (
        _instead(SUMMARY, lambda path: os.mknod(path, 0o020600, os.makedev(1, 5))),
        "is not a regular file|Permission denied",
    ),
    "a huge summary": (_instead(SUMMARY, _sparse(1 << 40)), "is larger than"),
    "a huge table": (_instead("kernels.parquet", _sparse(1 << 40)), "is damaged"),
    "deep JSON": (
        _instead(SUMMARY, lambda path: path.write_text(f'{{"tools": {DEEP}}}')),
        "nested too deeply|is damaged",
    ),
    "deep tables": (_summary(tools=json.loads("[" * 900 + "]" * 900)), "is damaged"),
    "numbers beyond all": (_summary(schema=10**400), "schema|is damaged"),
    "a name with a path": (_summary(tables={"../../../etc/passwd": 1}), ""),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    return write_run(folder, kernels=[kernel("k")], launches=[launch("k", 0, 1, 2)], **code("k", 20))


@pytest.mark.parametrize("kind", FOLDERS)
def test_run_folders(kind: str, whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    change, reason = FOLDERS[kind]
    for copy in ("run", "copy"):
        shutil.copytree(whole, tmp_path / copy)
    try:
        change(tmp_path / "run")
    except PermissionError:
        pytest.skip("making a device needs rights that this user has not")
    for number, command in enumerate((["report"], ["report", "--format", "html", "-o"], ["merge", whole, "-o"])):
        output = [tmp_path / f"out{number}"] if command[-1:] == ["-o"] else []
        status = main([str(word) for word in (*command[:1], tmp_path / "run", *command[1:], *output)])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        assert "root:" not in out
        if reason:
            assert status == 1, (out, err)
            assert re.search(reason, err), err
            assert len(err.splitlines()) == 1
            assert not any(path.exists() and (path.is_file() or any(path.iterdir())) for path in output)


@pytest.mark.rows(2)
@pytest.mark.parametrize("owner", ["this user's", "another's"])
@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777])
def test_folders_above(owner: str, mode: int, tmp_path: Path) -> None:
    """A run uses a new folder that other users cannot read, whoever may write to its parent."""
    above, run = tmp_path / "above", tmp_path / "above" / "run"
    above.mkdir()
    above.chmod(mode)
    before: tuple[str, ...] = ()
    if owner == "another's":  # root is another user in a namespace
        before = ("unshare", "--user", "--map-user=54321", "--map-group=54321")
        if subprocess.run([*before, "true"], capture_output=True).returncode:
            pytest.skip("this system has no namespaces of users for this one")
    done = run_luthier("run", "-o", run, "--", "true", before=before)
    assert done.returncode == 0, done
    assert run.stat().st_mode & 0o777 == 0o700
    assert RunFolder(run).summary.exit_code == 0
