"""Captures replayed by workers of a Dask cluster, some of which are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from effort import EVERYTHING
from luthier.errors import LuthierError
from luthier.replay.cluster import SentFile, WorkerTask, cluster, outcomes_on, work
from luthier.replay.jobs import ReplayOutcome
from luthier.replay.launches import Replay
from luthier.replay.processes import replayed_elsewhere

from .conftest import Luthier
from .test_replay import spoil

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalCluster]:
    """Workers in separate processes."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=4 if EVERYTHING else 2, threads_per_worker=1, dashboard_address=":0", silence_logs=60
    ) as cluster:
        yield cluster


def connected(workers: LocalCluster) -> Client:
    """Return a client of a cluster, another one each time."""
    from distributed import Client

    return Client(workers)


@pytest.fixture(scope="module")
def many(captured: Callable[..., list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of captures of three programs; one expects another byte, one is damaged."""
    folder = tmp_path_factory.mktemp("many")
    files = [file for name in ("reduction", "histogram", "stack") for file in captured(name)]
    for number in range(6):
        shutil.copy(files[number % len(files)], folder / f"{number:02}.lcap")
    spoil(files[0], folder / "06.lcap")
    (folder / "07.lcap").write_bytes(b"PK")
    return folder


def stable(rows: Rows) -> Rows:
    """Return rows without what differs from run to run."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def plain(rows: Iterable[ReplayOutcome]) -> Rows:
    """Return outcomes as data, without what differs from run to run."""
    return stable([row.to_json() for row in rows])


@pytest.fixture(scope="module")
def serial(luthier_once: Callable[..., Rows], many: Path) -> Rows:
    """The rows of a replay by one process."""
    return luthier_once(many)


@pytest.fixture(scope="module")
def luthier_once() -> Callable[..., Rows]:
    """``luthier_once(folder)``: replay without a cluster."""
    return lambda folder: plain(replayed_elsewhere(Replay(file=str(path))) for path in sorted(folder.glob("*.lcap")))


@pytest.mark.thorough
def test_a_cluster_finds_what_one_process_does(
    workers: LocalCluster, luthier: Luthier, many: Path, serial: Rows
) -> None:
    done = luthier("replay", "--json", "--scheduler", workers.scheduler_address, many)
    assert done.returncode == 2, done.stderr
    assert stable(json.loads(done.stdout)) == serial
    assert {row["status"] for row in serial} == {0, 1, 2}


@pytest.mark.thorough
def test_killed_workers_lose_nothing(workers: LocalCluster, many: Path, serial: Rows) -> None:
    """Other workers take over their tasks, and new workers replace them."""
    over = threading.Event()
    killed: list[int] = []

    def kill(client: Client) -> None:
        chosen = random.Random(3)
        while not over.wait(1.0):
            pids = client.run(os.getpid, on_error="ignore") or {}
            if pids and len(killed) < (4 if EVERYTHING else 2):
                killed.append(chosen.choice(sorted(pids.values())))
                with suppress(ProcessLookupError):
                    os.kill(killed[-1], signal.SIGKILL)

    with connected(workers) as client, connected(workers) as other:
        killer = threading.Thread(target=kill, args=(other,))
        killer.start()
        try:
            rows = plain(outcomes_on(client, sorted(many.iterdir()) * 4, Replay()))
        finally:
            over.set()
            killer.join()
    assert rows == serial * 4
    assert killed


@pytest.mark.thorough
def test_a_capture_that_kills_each_worker(captured: Callable[..., list[Path]], workers: LocalCluster) -> None:
    """The failure is a row, and the other captures have their rows."""
    (file, *_) = captured("histogram")
    with connected(workers) as client, connected(workers) as other:
        over = threading.Event()

        def kill() -> None:
            while not over.is_set():
                for pid in (other.run(os.getpid, on_error="ignore") or {}).values():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.2)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            (row,) = outcomes_on(client, [file], Replay())
        finally:
            over.set()
            killer.join()
    assert row.status == 2
    assert "workers were lost" in row.what


def test_no_worker_is_left(captured: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported for each capture, instead of waiting forever."""
    from distributed import LocalCluster

    monkeypatch.setattr("luthier.replay.cluster._WITHOUT_WORKERS", 1.0)
    monkeypatch.setattr("luthier.replay.cluster._LOOK", 0.5)
    files = [*captured("reduction"), *captured("histogram")] * 4
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=60) as none,
        connected(none) as client,
    ):
        began = time.monotonic()
        rows = list(outcomes_on(client, files, Replay()))
    assert [row.file for row in rows] == list(map(str, files))
    assert {row.status for row in rows} == {2}
    assert all("all workers were lost" in row.what for row in rows)
    assert time.monotonic() - began < 60


@pytest.mark.thorough
def test_options_go_along(
    captured: Callable[..., list[Path]], build_program: Callable[..., Path], workers: LocalCluster, luthier: Luthier
) -> None:
    """Files that options name are read where the command runs."""
    files = captured("reduction")[:1]
    words = ["replay", "--json", "--with-object", build_program("reduction", "-O3"), *files]
    local = json.loads(luthier(*words).stdout)
    remote = json.loads(luthier(*words, "--scheduler", workers.scheduler_address).stdout)
    assert stable(remote) == stable(local)
    assert all("recorded_instructions" in row for row in remote)
    _, mix = captured("defects")
    checked = luthier("replay", "--json", "--check", "race", "--scheduler", workers.scheduler_address, mix)
    assert (checked.returncode, json.loads(checked.stdout)[0]["what"]) == (1, "equal, 2 findings")


@pytest.mark.thorough
def test_tools_on_a_cluster(
    captured: Callable[..., list[Path]], workers: LocalCluster, luthier: Luthier, temporary: Path
) -> None:
    """The run directory has what one process's has, added up."""
    files = [*captured("reduction"), *captured("histogram")] * 3
    words = ["replay", "--json", "-t", "instr_count:per_wave", "-t", "opcode_histogram"]
    runs = {}
    for name, more in (("here", []), ("there", ["--scheduler", workers.scheduler_address])):
        done = luthier(*words, *more, "-o", temporary / name, *files)
        assert done.returncode == 0, done.stderr
        runs[name] = json.loads(done.stdout)
    assert stable(runs["there"]["replays"]) == stable(runs["here"]["replays"])

    def counted(run: dict[str, Any]) -> int:
        (table,) = next(tool["tables"] for tool in run["tools"] if tool["tool"] == "instr_count")
        return sum(row[-1] for row in table["rows"])

    assert counted(runs["there"]) == counted(runs["here"]) > 0
    summaries = [json.loads((temporary / name / "summary.json").read_text()) for name in ("here", "there")]
    assert summaries[0]["tables"]["launches"] == summaries[1]["tables"]["launches"] == len(files)
    assert luthier("report", temporary / "there", "--format", "json").returncode == 0


def test_a_cluster_of_this_machine(captured: Callable[..., list[Path]], luthier: Luthier) -> None:
    files = captured("reduction")
    done = luthier("replay", "--scheduler", "local", *files)
    assert (done.returncode, done.stdout.count(": equal, ")) == (0, len(files)), done
    assert done.stderr == ""


def test_a_cluster_of_this_machine_listens_to_nobody() -> None:
    """The cluster has addresses only in this process, and no HTTP pages."""
    with cluster("local") as client:
        assert client.scheduler.address.startswith("inproc://")
        assert client.submit(os.getpid).result() == os.getpid()
        own = set()
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                own.add(os.readlink(descriptor))
        lines = [*Path("/proc/net/tcp").read_text().splitlines(), *Path("/proc/net/tcp6").read_text().splitlines()]
        addresses = [row[1] for row in map(str.split, lines) if row[3] == "0A" and f"socket:[{row[9]}]" in own]
        assert addresses
        for host, port in (address.split(":") for address in addresses):
            assert host == "0100007F"  # 127.0.0.1
            for page in ("", "status", "info/main/workers.html", "json/counts.json", "metrics", "health"):
                with pytest.raises(HTTPError, match="404"):
                    urlopen(f"http://127.0.0.1:{int(port, 16)}/{page}", timeout=10)


@pytest.mark.thorough
def test_nobody_answers(luthier: Luthier, captured: Callable[..., list[Path]]) -> None:
    done = luthier("replay", "--scheduler", "tcp://127.0.0.1:9", captured("reduction")[0])
    assert (done.returncode, "error: cannot connect to a Dask scheduler at tcp:" in done.stderr) == (1, True), done


@pytest.mark.thorough
def test_another_luthier(captured: Callable[..., list[Path]], workers: LocalCluster) -> None:
    task = WorkerTask(Replay(), (SentFile.of(captured("reduction")[0]),), None, None, None, version="0.0.1")
    with connected(workers) as client, pytest.raises(LuthierError, match=r"but the client has 0\.0\.1"):
        client.submit(work, task, pure=False).result()
