"""The build folder: ownership, atomic outputs, and what counts as up to date."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from luthier.errors import BuildError

from luthier_build import jobs
from luthier_build.workspace import (
    MARKER,
    build_folder,
    forget,
    inputs_of,
    is_current,
    read_depfile,
    remember,
    replacing,
    write_atomic,
    write_together,
)


def test_a_folder_of_someone_else_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    with pytest.raises(BuildError, match="was not made by Luthier's build"), build_folder(foreign):
        pass
    assert (foreign / "thesis.tex").read_text() == "precious"

    own = tmp_path / "own"
    with build_folder(own):
        pass
    with build_folder(own):  # and again
        assert (own / MARKER).exists()


def test_an_unwritable_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="file"), build_folder(tmp_path / "file"):
        pass
    below = tmp_path / "file/below"
    with pytest.raises(BuildError, match=r"cannot use build folder .*file/below"), build_folder(below):
        pass


def test_two_builds_of_one_folder_wait_for_each_other(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def build() -> None:
        with build_folder(tmp_path / "b"):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


def test_replacing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sub/out.bin"
    with replacing(path) as fresh:
        fresh.write_bytes(b"one")

    def interrupted() -> None:
        with replacing(path) as fresh:
            fresh.write_bytes(b"half of tw")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"one"
    assert os.listdir(path.parent) == ["out.bin"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_write_atomic_leaves_equal_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert write_atomic(path, "same")
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert not write_atomic(path, "same")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert write_atomic(path, "other")


def test_up_to_date_means_same_key_same_inputs_same_output(tmp_path: Path) -> None:
    source, output = tmp_path / "a.hip", tmp_path / "a.o"
    source.write_text("one")
    output.write_text("made")
    assert not is_current(output, "key")
    remember(output, "key", [source])
    assert is_current(output, "key")
    assert inputs_of(output) == (source,)
    assert not is_current(output, "other key")

    os.utime(source, (1, 1))  # only time stamps changed
    assert is_current(output, "key")
    source.write_text("two")
    assert not is_current(output, "key")
    source.write_text("one")
    assert is_current(output, "key")
    output.write_text("damaged")
    assert not is_current(output, "key")
    output.write_text("made")
    source.unlink()
    assert not is_current(output, "key")
    source.write_text("one")
    forget(output)
    assert not is_current(output, "key")


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"key": "key"}', '{"key": "key", "output": 3, "inputs": 4}'])
def test_a_damaged_record_only_means_building_again(tmp_path: Path, record: str) -> None:
    output = tmp_path / "a.o"
    output.write_text("made")
    (tmp_path / "a.o.record").write_text(record)
    assert not is_current(output, "key")
    assert inputs_of(output) == ()


@pytest.mark.parametrize("replaces", [True, False])
def test_a_file_of_equal_size_and_time_is_another(tmp_path: Path, replaces: bool) -> None:
    """As tar and `cp -p` write them."""
    source, output = tmp_path / "a.h", tmp_path / "a.o"
    output.write_text("made")

    def write(text: str) -> None:
        fresh = source.with_suffix(".new") if replaces else source
        fresh.write_text(text)
        os.utime(fresh, (1.6e9, 1.6e9))
        fresh.replace(source)

    write("one")
    remember(output, "key", [source])
    assert is_current(output, "key")
    time.sleep(0.01)  # more than the resolution of file systems
    write("two")
    assert not is_current(output, "key")


@pytest.mark.parametrize("age", [0, 1000])
def test_what_was_put_there_while_it_was_read_is_in_no_record(tmp_path: Path, age: int) -> None:
    source, output, other = tmp_path / "a.h", tmp_path / "a.o", tmp_path / "b.h"
    for path in (source, output, other):
        path.write_text(path.name)
    os.utime(other, (time.time() - age, time.time() - age))
    time.sleep(0.01)
    start = time.time_ns()
    remember(output, "key", [source], start)
    assert is_current(output, "key")
    time.sleep(0.01)
    other.replace(source)
    remember(output, "key", [source], start)
    assert not is_current(output, "key")


def test_depfile_names_are_unescaped(tmp_path: Path) -> None:
    path = tmp_path / "a.d"
    path.write_text("a.o: a.hip /usr/include/x.h \\\n  with\\ blank.h dollar$$.h \\\n  hash\\#.h\n\nx.h:\n")
    assert read_depfile(path) == ["a.hip", "/usr/include/x.h", "with blank.h", "dollar$.h", "hash#.h"]
    path.write_text("nothing")
    with pytest.raises(BuildError, match="no rule"):
        read_depfile(path)
    with pytest.raises(BuildError, match="wrote no dependency file"):
        read_depfile(tmp_path / "missing.d")


def test_jobs_are_capped_by_memory_and_obey_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "available_memory", lambda: 3 * jobs.MEMORY_OF_ONE_COMPILATION)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    assert jobs.job_count(0, 100) == 3
    assert jobs.job_count(0, 2) == 2
    assert jobs.job_count(8, 100) == 8
    monkeypatch.setattr(jobs, "available_memory", lambda: 0)
    assert jobs.job_count(0, 100) == 1
    monkeypatch.setattr(jobs, "available_memory", lambda: None)
    assert jobs.job_count(0, 100) == 64


def test_run_all_keeps_order_and_stops_after_a_failure() -> None:
    def value(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number

    assert jobs.run_all([lambda n=n: value(n) for n in range(5)], 4) == [0, 1, 2, 3, 4]  # type: ignore[misc]

    started: list[int] = []

    def fail(number: int) -> None:
        started.append(number)
        raise BuildError(f"number {number}")

    with pytest.raises(BuildError, match="number 0"):
        jobs.run_all([lambda n=n: fail(n) for n in range(5)], 1)  # type: ignore[misc]
    assert started == [0]

    barrier = threading.Barrier(2)

    def fail_together(number: int) -> None:
        barrier.wait(5)
        raise BuildError(f"number {number}")

    with pytest.raises(BuildError, match=r"2 compilations failed:\nnumber 0\nnumber 1"):
        jobs.run_all([lambda n=n: fail_together(n) for n in range(2)], 2)  # type: ignore[misc]
    with pytest.raises(ZeroDivisionError):  # a bug is not dressed up as a build error
        jobs.run_all([lambda: 1 // 0], 1)
    assert jobs.run_all([], 0) == []


@pytest.mark.rows(1)
@pytest.mark.parametrize("room", [0, 10, 4096, 20_000])
def test_a_full_disk_is_one_line_and_leaves_everything_as_it_was(hook: str, tmp_path: Path, room: int) -> None:
    """`luthier build` where no file may grow beyond `room` bytes, at every stage, by the kernel's own limit."""
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool/__init__.py").write_text("")
    (tmp_path / "tool/device.hip").write_text(hook)
    settings = '[tool.luthier]\npackage = "tool"\ntargets = ["gfx942"]\nmodules.device = ["tool/device.hip"]\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    before = {"tool/device.json": "old", "tool/device.pyi": "old"}
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    code = (
        "import resource, signal, sys; from luthier.cli.main import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room})); sys.exit(main(['build']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("luthier build: error: ")
    assert sorted(path.name for path in (tmp_path / "tool").iterdir()) == [
        *("__init__.py", "device.hip", "device.json", "device.pyi")
    ]
    for name, text in before.items():
        assert (tmp_path / name).read_text() == text
    left = [path.name for path in (tmp_path / "build").rglob("*") if path.name.startswith(".") and path.suffix]
    assert left == []


def test_files_written_together_are_written_or_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BuildError, match="cannot write"):
        write_together({tmp_path / "a": "new", tmp_path / "b": "new", tmp_path / "a/below": "new"})
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a", "folder"]
    assert write_together({tmp_path / "a": "old", tmp_path / "b": b"new"}) == [tmp_path / "b"]
