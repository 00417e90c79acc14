"""``luthier replay --scheduler``: captures replayed in parallel by the workers of a Dask cluster.

A task contains the captures and other files that it needs as bytes. Workers need Luthier, but no access to the client's
files.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

import luthier
from luthier.errors import DeviceError, LuthierError
from luthier.replay.jobs import CaptureJob, ReplayOutcome, ReplayStatus, numbered
from luthier.replay.processes import done_elsewhere, replayed_elsewhere
from luthier.replay.tools import ReplayUnderTools, ToolsOutcome, texts
from luthier.support.extras import extra
from luthier.support.private_folder import private_folder

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
"""A cluster on this machine that ends with the command."""
_UNSEEN = "127.0.0.1:0"
_AHEAD = 2
"""Tasks in flight for each thread of the workers: their captures are in memory."""
_CONNECT = "5s"
"""Time until a scheduler counts as unreachable."""
_WITHOUT_WORKERS, _LOOK = 60.0, 5.0
"""Seconds without workers after which the tasks fail, and seconds between two checks."""
_CHUNK = 16
"""The most captures of a task under tools: each task makes a run directory."""
Row = TypeVar("Row", bound=ReplayOutcome)


class SentFile(Struct, frozen=True):
    """A file of the client for a worker."""

    path: str
    data: bytes

    @classmethod
    def of(cls, path: str | Path) -> SentFile:
        """Read a file.

        Raises:
            LuthierError: it cannot be read.
        """
        try:
            return cls(str(path), Path(path).read_bytes())
        except OSError as problem:
            raise LuthierError(f"cannot read: {problem.strerror or problem}", object=str(path)) from None

    def put(self, folder: Path) -> str:
        """Write the file, under its own name, to a new folder inside `folder`, and return its path."""
        path = Path(tempfile.mkdtemp(dir=folder)) / Path(self.path).name
        path.write_bytes(self.data)
        return str(path)


class WorkerTask(Struct, frozen=True):
    """Work of a worker: a job with the contents of its files.

    Args:
        captures: contents of the job's `file` or `files`.
        object, against: files that the job names.
        limit: seconds that it may take.
        version: version of the client's Luthier.
    """

    job: CaptureJob[Any]
    captures: tuple[SentFile, ...]
    object: SentFile | None
    against: SentFile | None
    limit: float | None
    version: str = luthier.__version__

    @classmethod
    def of(cls, job: CaptureJob[Any], paths: Sequence[str | Path], limit: float | None) -> WorkerTask:
        """Read the files of a job.

        Raises:
            LuthierError: one cannot be read.
        """
        captures = tuple(map(SentFile.of, paths))
        object = None if job.object is None else SentFile.of(job.object)
        against = None if job.against is None else SentFile.of(numbered(job.against)[1])
        return cls(job, captures, object, against, limit)


# On a worker ----------------------------------------------------------------------------------------------------------


def work(task: WorkerTask) -> ReplayOutcome:
    """Run a task on this machine, and return the answer of its job with the client's names of captures.

    Raises:
        DeviceError: the client has another version of Luthier.
    """
    with private_folder() as folder:
        job, (path,) = _received(task, folder)
        row: ReplayOutcome = replayed_elsewhere(replace(job, file=path), task.limit)
        return _named(row, {path: task.captures[0].path})


def work_under_tools(task: WorkerTask) -> tuple[ToolsOutcome, bytes]:
    """Run a task under tools on this machine.

    Returns:
        The outcome, and the run directory as a tar archive.

    Raises:
        DeviceError: the client has another version of Luthier, or the process that replays fails.
    """
    with private_folder() as folder:
        job, files = _received(task, folder)
        run = folder / "run"
        outcome = done_elsewhere(replace(job, files=tuple(files), output=str(run)), task.limit)
        names = {file: capture.path for file, capture in zip(files, task.captures, strict=True)}
        outcome.replays = tuple(_named(row, names) for row in outcome.replays)
        packed = io.BytesIO()
        if run.is_dir():
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(run, arcname=".")
        return outcome, packed.getvalue()


def _received(task: WorkerTask, folder: Path) -> tuple[Any, list[str]]:
    """Return a task's job, with its files in a folder of this machine, and the paths of the captures there.

    Raises:
        DeviceError: the client has another version of Luthier.
    """
    from distributed import get_worker

    if task.version != luthier.__version__:
        raise DeviceError(f"the worker has Luthier {luthier.__version__}, the client {task.version}: use one version")
    job = task.job
    # All replays of the worker share its cores.
    job = replace(job, threads=max(1, len(os.sched_getaffinity(0)) // get_worker().state.nthreads))
    if task.object is not None:
        job = replace(job, object=task.object.put(folder))
    if task.against is not None and job.against is not None:
        argument, path = numbered(job.against)[0], task.against.put(folder)
        job = replace(job, against=path if argument is None else f"{argument}={path}")
    return job, [capture.put(folder) for capture in task.captures]


def _named(row: Row, names: dict[str, str]) -> Row:
    """Return a row with the client's paths instead of those of this machine."""
    for path, name in names.items():
        row.file, row.what = row.file.replace(path, name), row.what.replace(path, name)
    return row


# On the client --------------------------------------------------------------------------------------------------------


@contextmanager
def cluster(scheduler: str) -> Iterator[Client]:
    """Provide a client of a scheduler, or of a cluster on this machine (`LOCAL`).

    Raises:
        LuthierError: Dask is not installed, or the scheduler does not answer.
    """
    dask, distributed = extra("dask"), extra("distributed")
    Client, LocalCluster = distributed.Client, distributed.LocalCluster
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # the tasks report errors
    settings: dict[str, Any] = {"distributed.comm.timeouts.connect": _CONNECT}
    if scheduler == LOCAL:  # Dask always opens HTTP servers: give them no routes
        settings |= {f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")}
    with dask.config.set(settings):
        if scheduler != LOCAL:
            try:
                client = Client(scheduler)
            except (OSError, ValueError) as problem:
                raise LuthierError(f"cannot connect to a Dask scheduler at {scheduler}: {problem}") from None
            with client:
                yield client
            return
        threads = len(os.sched_getaffinity(0))
        with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=threads,
                processes=False,  # nothing listens for pickles; each replay has its own process anyway
                dashboard_address=_UNSEEN,
                worker_dashboard_address=_UNSEEN,
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            ) as local,
            Client(local) as client,
        ):
            yield client


def outcomes_on(
    client: Client, paths: Sequence[Path], job: CaptureJob[Row], limit: float | None = None
) -> Iterator[Row]:
    """Yield the outcome of a job on each capture, in order; arguments as for `luthier.cli.captures.outcomes`.

    A task whose worker was lost several times has an outcome with that reason.
    """
    return jobs_on(client, [replace(job, file=str(path)) for path in paths], limit)


def jobs_on(client: Client, jobs: Sequence[CaptureJob[Row]], limit: float | None = None) -> Iterator[Row]:
    """Yield the outcome of each job, in order."""
    tasks = (partial(WorkerTask.of, job, [job.file], limit) for job in jobs)
    for job, done in zip(jobs, _finished(client, work, tasks), strict=True):
        if isinstance(done, str):
            row: Row = job.answers(status=ReplayStatus.IMPOSSIBLE, what=done)  # type: ignore[assignment]
            row.file = job.file
            yield row
        else:
            yield done


def replayed_under_tools_on(
    client: Client, paths: Sequence[Path], job: ReplayUnderTools, limit: float | None, output: Path
) -> ToolsOutcome:
    """Replay under tools, and write the merged run directory.

    Args:
        limit: seconds that each task may take.
        output: a new or empty folder.

    Returns:
        The merged outcome; tables have a column for the run of each row.

    Raises:
        LuthierError: no task made a run directory, or the merged one cannot be written.
    """
    from luthier.report.merge import merge
    from luthier.run.folder import Claim, RunFolder

    with Claim(output):  # fail before hours of work if the results cannot be written
        pass
    threads = sum(client.nthreads().values())
    size = min(_CHUNK, -(-len(paths) // max(1, threads)))
    chunks = [list(paths[at : at + size]) for at in range(0, len(paths), size)]
    rows: list[ReplayOutcome] = []
    faults: list[str] = []
    errors: list[str] = []
    with private_folder() as folder:
        runs: list[RunFolder] = []
        finished = _finished(client, work_under_tools, (partial(WorkerTask.of, job, chunk, limit) for chunk in chunks))
        for number, (chunk, done) in enumerate(zip(chunks, finished, strict=True)):
            if isinstance(done, str):
                rows += [ReplayOutcome(file=str(p), status=ReplayStatus.IMPOSSIBLE, what=done) for p in chunk]
                continue
            outcome, packed = done
            rows += outcome.replays
            faults += outcome.faults
            errors += [outcome.error] if outcome.error else []
            if packed:
                with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                    archive.extractall(folder / f"{number}", filter="data")
                runs.append(RunFolder(folder / f"{number}"))
        if not runs:
            raise LuthierError(next(iter(errors), None) or rows[0].what)
        merge(runs, output)
    merged = RunFolder(output)
    return ToolsOutcome(
        replays=tuple(rows),
        sections=tuple((table.title, texts([table], mangled=job.mangled)) for table in merged.tool_tables()),
        tools=tuple(merged.summary.to_json()["tools"]),
        faults=tuple(faults),
        error=next(iter(errors), ""),
    )


def _finished(
    client: Client, work: Callable[[WorkerTask], Any], tasks: Iterable[Callable[[], WorkerTask]]
) -> Iterator[Any]:
    """Yield the result of each task in order, or as a `str` the reason why there is none. Few tasks are in memory, and
    in flight, at a time."""
    numbers: dict[Any, int] = {}
    results: dict[int, Any] = {}
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
            lost = f"all workers were lost, and no new one appeared for {_WITHOUT_WORKERS:g} seconds"
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
    """Wait until some futures are done and return them; none after `_WITHOUT_WORKERS` seconds without workers."""
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
        return f"{problem.allowed_failures + 1} workers were lost while they ran it"
    if isinstance(problem, LuthierError):
        return str(problem)
    return f"the worker failed: {type(problem).__name__}: {problem}"
