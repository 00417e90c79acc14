"""A service with a low limit of open files: ended processes hold none, and none can stop it through shared memory."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import run_luthier
from luthier.cache.store import Store
from luthier.run.shared_memory import SharedMemory
from luthier.support.private_folder import private_folder

LIMIT = ("prlimit", "--nofile=48:48")


def test_processes_that_have_ended_hold_nothing(build_program: Callable[..., Path], tmp_path: Path) -> None:
    """More sequential processes than the service may open files; data decoded for them is freed with them."""
    loop = f"for number in $(seq 20); do {build_program('told')} || exit 3; grep RssAnon: /proc/$PPID/status; done"
    command = "run", "-t", "instr_count", "-o", tmp_path / "run", "--", "sh", "-c", loop
    done = run_luthier(*command, before=LIMIT)
    assert done.returncode == 0, done
    memory = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("RssAnon:")]
    assert (len(memory), memory[-1] < memory[9] + 3000) == (20, True), memory
    assert len(json.loads((tmp_path / "run/summary.json").read_text())["processes"]) == 20


def test_more_processes_at_once_than_there_may_be_files(build_program: Callable[..., Path], tmp_path: Path) -> None:
    """Processes wait for each other, each with no files or all that it needs."""
    at_once = f"for number in $(seq 16); do {build_program('told')} & done; wait"
    done = run_luthier("run", "-t", "instr_count", "-o", tmp_path / "run", "--", "sh", "-c", at_once, before=LIMIT)
    assert (done.returncode, "processes must wait for others to end: ulimit -n 48" in done.stderr) == (0, True), done
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (len(summary["processes"]), summary["tables"]["launches"], summary["faults"]) == (16, 16, [])


def test_handles_of_memory_are_given_back(build_program: Callable[..., Path]) -> None:
    done = run_luthier("run", "-t", "instr_count", "--allow-nothing", "--", build_program("handles"), 100, before=LIMIT)
    assert (done.returncode, done.stdout) == (0, "done\n"), done


def test_shared_memory_cannot_be_cut_short() -> None:
    memory = SharedMemory("test", 5000)
    for size in (0, 4096, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.fd, size)
    kept = memory.bytes[4096:]
    files = len(os.listdir("/proc/self/fd"))
    memory.close()
    assert len(os.listdir("/proc/self/fd")) == files - 1
    memory.bytes[:] = 7
    memory.give_back(0, 4096)
    assert (int(memory.bytes.sum()), len(memory.bytes)) == (7 * 4096, 8192)
    del memory
    assert np.all(kept == 7)  # arrays hold it


def test_places_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on network file systems without a lock daemon: it is reported once, and nothing waits."""

    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(fcntl, "lockf", refuse)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with private_folder() as folder:
        assert folder.is_dir()
    assert not folder.exists()
    for name in ("a", "b"):
        store = Store(tmp_path / "stores" / f"{name}.sqlite")
        store.put({b"key": b"value"})
        assert store.get([b"key"]) == {}
    output = capsys.readouterr().err
    assert "has no file locks (No locks available): folders of killed commands are not removed" in output
    assert output.count("the cache is not used") == 1
