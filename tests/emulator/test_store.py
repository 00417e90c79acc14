"""The emulator's store on disk: found again, never used when damaged, shared by processes and threads."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from luthier.cache.folder import cache_root
from luthier.cache.store import Store

LAUNCH = """
import sys
import numpy as np
from luthier.emulator.inspection.bench import run_assembly
from luthier.emulator.native.machine import machine_code
state = run_assembly("gfx942", "v_add_u32 v1, v0, v0\\ns_mul_i32 s4, s2, 7\\nv_cvt_f32_u32 v2, v1",
                     {0: np.arange(64, dtype=np.uint32)}, {2: 6})
print(machine_code().compiled, state.sgpr(4), int(state.vgpr(1)[5]), float(state.vgpr(2).view(np.float32)[63]),
      "llvmlite.ir" in sys.modules)
"""


def launch(cache: Path | str) -> list[str]:
    """In a new process: functions compiled, three results, and whether the code generator was imported."""
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", LAUNCH], capture_output=True, text=True, env=environment, check=True)
    return done.stdout.split()


RESULTS = ["42", "10", "126.0"]


def database(cache: Path) -> Path:
    (path,) = (cache / "emulator").glob("*.sqlite")
    return path


def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    compiled, *results, generator = launch(tmp_path)
    assert int(compiled) > 3
    assert (results, generator) == (RESULTS, "True")
    assert launch(tmp_path) == ["0", *RESULTS, "False"]


def test_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for _ in range(2):
        compiled, *results, _ = launch("")
        assert int(compiled) > 3
        assert results == RESULTS
    assert not any(tmp_path.iterdir())


def test_the_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert launch(tmp_path / "file")[1:4] == RESULTS


def test_cache_root() -> None:
    assert cache_root({"LUTHIER_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_root({"LUTHIER_CACHE_DIR": "", "XDG_CACHE_HOME": "/b"}) is None
    assert cache_root({"XDG_CACHE_HOME": "/b"}) == Path("/b/luthier")
    assert cache_root({"LUTHIER_CACHE_DIR": "a/b", "XDG_CACHE_HOME": "/b"}) == Path.cwd() / "a/b"
    assert cache_root({"XDG_CACHE_HOME": "b"}) == Path.home() / ".cache" / "luthier"
    assert cache_root({}) == Path.home() / ".cache" / "luthier"


@pytest.mark.rows(1)
@pytest.mark.parametrize("damage", ["bits", "garbage", "cut", "swapped", "empty"])
def test_damage_is_noticed_and_made_good(tmp_path: Path, damage: str) -> None:
    launch(tmp_path)
    path = database(tmp_path)
    if damage == "bits":  # one bit of every value
        with sqlite3.connect(path) as connection:
            rows = connection.execute("SELECT key, value FROM kept").fetchall()
            for key, value in rows:
                broken = bytearray(value)
                broken[len(broken) // 2] ^= 4
                connection.execute("UPDATE kept SET value = ? WHERE key = ?", (bytes(broken), key))
    elif damage == "swapped":  # values that are whole, under the wrong keys
        with sqlite3.connect(path) as connection:
            rows = connection.execute("SELECT key, checksum, value FROM kept").fetchall()
            for (key, _, _), (_, checksum, value) in zip(rows, rows[1:] + rows[:1], strict=True):
                connection.execute("UPDATE kept SET checksum = ?, value = ? WHERE key = ?", (checksum, value, key))
    elif damage == "garbage":
        path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(b"")
    compiled, *results, _ = launch(tmp_path)
    assert int(compiled) > 3
    assert results == RESULTS
    assert launch(tmp_path) == ["0", *RESULTS, "False"]


@pytest.mark.thorough
def test_processes_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", LAUNCH], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(4)
    ]
    for process in started:
        output, _ = process.communicate()
        assert process.returncode == 0
        assert output.split()[1:4] == RESULTS
    assert launch(tmp_path)[0] == "0"


def test_threads_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "a" / "b.sqlite")

    def work(number: int) -> None:
        for index in range(50):
            store.put({f"{number} {index}".encode(): bytes([number, index])})
            store.get([f"{other} {index}".encode() for other in range(8)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = [f"{number} {index}".encode() for number in range(4) for index in range(50)]
    values = Store(tmp_path / "a" / "b.sqlite").get([*keys, b"other"])
    assert values == {key: bytes(int(word) for word in key.split()) for key in keys}


def test_many_keys_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "b.sqlite")
    items = {f"{index}".encode(): f"value {index}".encode() for index in range(2345)}
    store.put(items)
    assert store.get(items) == items


def test_changed_sources_keep_nothing(tmp_path: Path) -> None:
    """Results of a process with outdated sources in memory are not kept."""
    believed = [False]
    store = Store(tmp_path / "b.sqlite", lambda: believed[0])
    store.put({b"a": b"1"})
    assert store.get([b"a"]) == {}
    believed[0] = True
    store.put({b"a": b"1"})
    assert store.get([b"a"]) == {b"a": b"1"}


def test_old_databases_go(tmp_path: Path) -> None:
    old, recent = tmp_path / "old.sqlite", tmp_path / "recent.sqlite"
    for path in (old, recent):
        path.write_bytes(b"")
    os.utime(old, (1e9, 1e9))
    Store(tmp_path / "new.sqlite").put({b"a": b"1"})
    assert not old.exists()
    assert recent.exists()


def test_the_command_tells_and_empties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from luthier.cli.main import main

    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path))
    launch(tmp_path)
    path = database(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_bytes(bytes(5000))
    assert main(["cache", "--json"]) == 0
    stores = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert stores["emulator"]["bytes"] == sum(file.stat().st_size for file in path.parent.iterdir()) > 0
    assert (stores["other"]["bytes"], stores["other"]["files"]) == (5000, 1)
    assert main(["cache", "--size", "show", "other"]) == 0
    assert capsys.readouterr().out == "5000\n"
    assert main(["emulator", "cache"]) == 0
    assert "emulator" in capsys.readouterr().out
    assert main(["cache", "clear", "nothing"]) == 1
    assert main(["cache", "clear"]) == 0
    assert [one.name for one in tmp_path.iterdir() if one.name in stores] == ["other"]
    assert main(["cache", "clear", "other"]) == 0
    assert not (tmp_path / "other").exists()
    monkeypatch.setenv("LUTHIER_CACHE_DIR", "")
    capsys.readouterr()
    assert main(["cache"]) == 0
    assert "LUTHIER_CACHE_DIR is empty" in capsys.readouterr().out


def test_a_store_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luthier.cache.store.MOST_BYTES", 300_000)
    store = Store(tmp_path / "a.sqlite")
    keys = [bytes([number]) for number in range(100)]
    for key in keys:
        store.put({key: os.urandom(10_000)})
    stored = store.get(keys)
    assert keys[-1] in stored
    assert keys[0] not in stored
    assert 10 <= len(stored) <= 30
    assert (tmp_path / "a.sqlite").stat().st_size < 500_000


def test_a_child_process_has_its_own_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from luthier.emulator.native import store as module

    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path))
    module.store.cache_clear()
    try:
        parent = module.store()
        assert parent is not None
        parent.put({b"a": b"1"})
        child = os.fork()
        if child == 0:
            own = module.store()
            good = own is not None and own is not parent and own.get([b"a"]) == {b"a": b"1"}
            own.put({b"b": b"2"}) if own is not None else None
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0) == (child, 0)
        assert parent.get([b"a", b"b"]) == {b"a": b"1", b"b": b"2"}
    finally:
        module.store.cache_clear()
