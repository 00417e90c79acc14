"""``luthier replay --scheduler``: captures replayed side by side, by the workers of a Dask cluster.

A task has everything with it: captures and the other files that it needs, as bytes. Workers need Luthier and nothing of
the client's disk.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

import luthier
from luthier.cli.replay_answers import IMPOSSIBLE
from luthier.cli.replay_process import REPLAY, elsewhere, row_elsewhere
from luthier.errors import DeviceError, LuthierError

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
"""A cluster of this machine, for as long as the command runs."""
_UNSEEN = "127.0.0.1:0"
_AHEAD = 2
"""Tasks in flight for each thread of the workers: their captures are in memory."""
UNDER_TOOLS = "luthier.cli.replay_tools"
"""Module whose process replays several captures."""
_CONNECT = "5s"
"""Time until a scheduler counts as not there."""
_WITHOUT_WORKERS, _LOOK = 60.0, 5.0
"""Seconds until a cluster that has lost all workers counts as one that gets none, and between two looks."""
_CHUNK = 16
"""Most captures of a task under tools: each task makes a run directory."""


class Sent(Struct, frozen=True):
    """A file of the client's, for a worker."""

    path: str
    data: bytes

    @classmethod
    def of(cls, path: str | Path) -> Sent:
        """Read a file.

        Raises:
            LuthierError: it cannot be read.
        """
        try:
            return cls(str(path), Path(path).read_bytes())
        except OSError as problem:
            raise LuthierError(f"cannot be read: {problem.strerror or problem}", object=str(path)) from None

    def put(self, folder: Path) -> str:
        """Write the file to a new folder in a folder, under its name, and return its path."""
        path = Path(tempfile.mkdtemp(dir=folder)) / Path(self.path).name
        path.write_bytes(self.data)
        return str(path)


class Task(Struct, frozen=True):
    """Work of a worker.

    Args:
        captures: files to replay.
        options: entries of the task of the process that replays; `Sent` in place of paths.
        module: what the process of each capture runs; `UNDER_TOOLS`: that of all of them, under the tools of `options`.
        output: each process is to write a file (`output` of its task), which is returned.
        version: the client's Luthier.
    """

    captures: tuple[Sent, ...]
    options: Mapping[str, Any]
    module: str
    output: bool = False
    version: str = luthier.__version__


class Done(Struct, frozen=True):
    """The outcome of a task.

    Args:
        answer: one row for each replay, and with tools what else `luthier.cli.replay_tools` returns.
        run: with tools, the run directory, as a tar archive; with `Task.output`, the file.
    """

    answer: Mapping[str, Any]
    run: bytes = b""


# On a worker ----------------------------------------------------------------------------------------------------------


def work(task: Task) -> Done:
    """Do a task on this machine.

    Raises:
        DeviceError: this is another Luthier than the client's.
    """
    if task.version != luthier.__version__:
        raise DeviceError(f"a worker has Luthier {luthier.__version__}, and the client {task.version}")
    with tempfile.TemporaryDirectory(prefix="luthier-replay-") as name:
        folder = Path(name)
        options = {key: _here(value, folder) for key, value in task.options.items()}
        options["threads"] = _threads()
        if task.module == UNDER_TOOLS:
            return _work_under_tools(task, options, folder)
        rows = []
        output = folder / "part"
        if task.output:
            options["output"] = str(output)
        for one in task.captures:
            path = one.put(folder)
            rows.append(_named(row_elsewhere(task.module, Path(path), options), {path: one.path}))
        return Done({"replays": rows}, output.read_bytes() if output.is_file() else b"")


def _work_under_tools(task: Task, options: dict[str, Any], folder: Path) -> Done:
    files = [one.put(folder) for one in task.captures]
    limit = options.pop("time_limit", None)
    run = folder / "run"
    told = elsewhere(UNDER_TOOLS, {**options, "files": files, "output": str(run)}, limit)
    names = {file: one.path for file, one in zip(files, task.captures, strict=True)}
    told["replays"] = [_named(row, names) for row in told["replays"]]
    packed = io.BytesIO()
    if run.is_dir():
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(run, arcname=".")
    return Done(told, packed.getvalue())


def _named(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a row with the client's paths in place of those here."""
    told = dict(row)
    for here, path in names.items():
        told |= {key: value.replace(here, path) for key, value in told.items() if isinstance(value, str)}
    return told


def _here(value: Any, folder: Path) -> Any:
    """Return an option's value with files in a folder of this machine; ``N=FILE`` is a pair."""
    if isinstance(value, Sent):
        return value.put(folder)
    if isinstance(value, tuple):
        return f"{value[0]}={value[1].put(folder)}"
    return value


def _threads() -> int:
    """Return how many host threads a replay on this worker has, so that all of its replays have all cores."""
    from distributed import get_worker

    replays: int = get_worker().state.nthreads
    return max(1, len(os.sched_getaffinity(0)) // replays)


# On the client --------------------------------------------------------------------------------------------------------


@contextmanager
def cluster(scheduler: str) -> Iterator[Client]:
    """Return a client of a scheduler, or of a cluster of this machine (`LOCAL`), for as long as it is used.

    Raises:
        LuthierError: Dask is not installed, or nothing answers.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise LuthierError("--scheduler needs Dask: pip install 'luthier[cluster]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what goes wrong is told by the tasks
    settings: dict[str, Any] = {"distributed.comm.timeouts.connect": _CONNECT}
    if scheduler == LOCAL:  # Dask opens its HTTP servers always: they offer nothing
        settings |= {f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")}
    with dask.config.set(settings):
        if scheduler != LOCAL:
            try:
                client = Client(scheduler)
            except (OSError, ValueError) as problem:
                raise LuthierError(f"no scheduler of Dask at {scheduler}: {problem}") from None
            with client:
                yield client
            return
        threads = len(os.sched_getaffinity(0))
        with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=threads,
                processes=False,  # so that nothing listens for pickles: each replay has a process of its own anyway
                dashboard_address=_UNSEEN,
                worker_dashboard_address=_UNSEEN,
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            ) as here,
            Client(here) as client,
        ):
            yield client


def replay_on(
    client: Client, paths: Sequence[Path], options: Mapping[str, Any], module: str = REPLAY
) -> Iterator[dict[str, Any]]:
    """Yield the row of each replay, in the order of the captures.

    One whose worker has been lost several times is a row that says so.

    Args:
        options: as `luthier.cli.replay_process.replay_elsewhere` takes them.
        module: what the process of each capture runs.
    """
    sent = _sendable(options)
    for path, done in zip(paths, _done(client, [[path] for path in paths], sent, module), strict=True):
        if isinstance(done, Done):
            yield from done.answer["replays"]
        else:
            yield {"file": str(path), "status": IMPOSSIBLE, "what": done}


def parts_on(
    client: Client, path: Path, options: Mapping[str, Any], ranges: Sequence[tuple[int, int]], module: str
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the row of each part of a launch, in their order, and what it did (`luthier.capture.split.Part.packed`)."""
    capture = Sent.of(path)
    tasks = (Task((capture,), {**_sendable(options), "range": list(of)}, module, output=True) for of in ranges)
    for done in _finished(client, (partial(_same, task) for task in tasks)):
        if isinstance(done, Done):
            (row,) = done.answer["replays"]
            yield row, done.run
        else:
            yield {"file": str(path), "status": IMPOSSIBLE, "what": done}, b""


def _same(task: Task) -> Task:
    return task


def replay_on_under_tools(
    client: Client, paths: Sequence[Path], options: Mapping[str, Any], output: Path
) -> dict[str, Any]:
    """Replay under tools, and write the merged run directory.

    Args:
        options: entries of the task of `luthier.cli.replay_tools`, but files and output; `time_limit`, seconds for each
            task.
        output: a new folder, or empty.

    Returns:
        What `luthier.cli.replay_tools` returns; tables have a column for the run of each row.

    Raises:
        LuthierError: there is no run directory to merge, or it cannot be written.
    """
    from luthier.cli.replay_tools import texts
    from luthier.report.merge import merge
    from luthier.run.folder import Claim, RunFolder

    with Claim(output):  # before hours of work, whose results could not be written
        pass
    threads = sum(client.nthreads().values())
    size = min(_CHUNK, -(-len(paths) // max(1, threads)))
    chunks = [list(paths[at : at + size]) for at in range(0, len(paths), size)]
    rows: list[dict[str, Any]] = []
    faults: list[str] = []
    errors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="luthier-replay-") as name:
        runs: list[RunFolder] = []
        found = _done(client, chunks, _sendable(options), UNDER_TOOLS)
        for number, (chunk, done) in enumerate(zip(chunks, found, strict=True)):
            if not isinstance(done, Done):
                rows += [{"file": str(path), "status": IMPOSSIBLE, "what": done} for path in chunk]
                continue
            rows += done.answer["replays"]
            faults += done.answer["faults"]
            errors += [done.answer["error"]] if done.answer["error"] else []
            if done.run:
                folder = Path(name) / f"{number}"
                with tarfile.open(fileobj=io.BytesIO(done.run)) as archive:
                    archive.extractall(folder, filter="data")
                runs.append(RunFolder(folder))
        if not runs:
            raise LuthierError(next(iter(errors), None) or str(rows[0]["what"]))
        merge(runs, output)
    merged = RunFolder(output)
    return {
        "replays": rows,
        "sections": [(table.title, texts([table], mangled=options["mangled"])) for table in merged.tool_tables()],
        "tools": merged.summary["tools"],
        "faults": faults,
        "error": next(iter(errors), ""),
    }


def _sendable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the files that they name."""
    sent = dict(options)
    if options.get("object"):
        sent["object"] = Sent.of(options["object"])
    if options.get("against"):
        number, mark, file = str(options["against"]).partition("=")
        pair = bool(mark) and number.isdecimal()
        sent["against"] = (number, Sent.of(file)) if pair else Sent.of(options["against"])
    return sent


def _done(
    client: Client, chunks: Sequence[Sequence[Path]], options: Mapping[str, Any], module: str
) -> Iterator[Done | str]:
    """Yield the outcome of each chunk of captures in order, or why there is none."""

    def task(chunk: Sequence[Path]) -> Task:
        return Task(tuple(map(Sent.of, chunk)), options, module)

    return _finished(client, (partial(task, chunk) for chunk in chunks))


def _finished(client: Client, tasks: Iterable[Callable[[], Task]]) -> Iterator[Done | str]:
    """Yield the outcome of each task in order, or why there is none; few are made, and in flight, at a time."""
    numbers: dict[Any, int] = {}
    results: dict[int, Done | str] = {}
    lost = ""

    def submitted() -> Iterator[Any]:
        for number, make in enumerate(tasks):
            if lost:
                results[number] = lost
                continue
            try:
                task = make()
            except LuthierError as problem:
                results[number] = str(problem)
                continue
            future = client.submit(work, task, pure=False)
            numbers[future] = number
            yield future

    left = submitted()
    for _ in itertools.islice(left, max(1, _AHEAD * sum(client.nthreads().values()))):
        pass
    following = 0
    while numbers:
        done = _some_done(client, list(numbers))
        for future in done:
            problem = future.exception()
            results[numbers.pop(future)] = future.result() if problem is None else _reason(problem)
            next(left, None)
        if not done:
            lost = f"all workers were lost, and none has come for {_WITHOUT_WORKERS:g} seconds"
            results |= dict.fromkeys(numbers.values(), lost)
            client.cancel(list(numbers), force=True)
            numbers.clear()
            next(left, None)
        while following in results:
            yield results.pop(following)
            following += 1
    for number in sorted(results):
        yield results[number]


def _some_done(client: Client, futures: Sequence[Any]) -> Sequence[Any]:
    """Wait for some futures to be done and return them; none if there has been no worker for long."""
    from distributed import wait

    without = 0.0
    while without < _WITHOUT_WORKERS:
        try:
            return list(wait(futures, timeout=_LOOK, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            without = 0.0 if client.nthreads() else without + _LOOK
    return []


def _reason(problem: BaseException) -> str:
    from distributed import KilledWorker

    if isinstance(problem, KilledWorker):
        return f"{problem.allowed_failures + 1} workers were lost while they had it"
    if isinstance(problem, LuthierError):
        return str(problem)
    return f"the worker failed: {type(problem).__name__}: {problem}"
