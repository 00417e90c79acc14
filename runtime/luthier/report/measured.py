"""Counters that a GPU counted, as profilers write them, beside what a run counted of the same kernels.

Formats: CSV, JSON and the rocpd database of rocprofv3 (https://rocm.docs.amd.com/projects/rocprofiler-sdk, "Kernel
counter collection", "JSON output schema" and "Using rocpd output format"), ``pmc_perf.csv`` of rocprof-compute, which
has a column for each counter.
"""

from __future__ import annotations

import csv
import math
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct, field

from luthier.errors import LuthierError
from luthier.isa.sq_counters import COUNTERS, sq_counters_of
from luthier.report.rows import KernelNumbers, by_kernel
from luthier.run.folder import RunFolder
from luthier.support.table import Cell, Table

_DATABASE = b"SQLite format 3\0"
_NAMES = ("Kernel_Name", "KernelName", "kernel")
_DISPATCHES = ("Dispatch_Id", "Dispatch_ID", "Index")
_PROCESSES = ("Process_Id", "PID", "pid")
_QUERY = """
SELECT pid, dispatch_id, kernel_name, counter_name, value FROM counters_collection
"""
_TIMES = """
SELECT pid, dispatch_id, name, duration, grid_x * grid_y * grid_z FROM kernels
"""
_SUFFIX = re.compile(r"( \[clone \.kd\]|\.kd)$")


class MeasuredTimes(Struct):
    """Launches of a file that have times."""

    launches: list[MeasuredLaunch]
    skipped: Counter[str]
    """Kernel -> launches without a time above 0."""


class MeasuredLaunch(Struct):
    """Counters of one launch."""

    kernel: str
    """Name as the profiler has it, without its suffix of kernel descriptors."""
    order: tuple[int, int]
    """Process and number of the dispatch, by which launches are in order."""
    counters: dict[str, float] = field(default_factory=dict)
    time_us: float | None = None
    """None: the file does not have it; likewise:"""
    items: int | None = None
    """Work-items of its grid."""


def read_times(path: Path) -> MeasuredTimes:
    """Return the launches with times in a file, in order.

    It is one of a profiler, as for `read_measured` or a kernel trace, or a table of columns (CSV) or list of objects
    (JSON) with ``kernel``, ``us``, and, if launches of a kernel differ in size, ``work_items``.

    Raises:
        LuthierError: the file cannot be read, has another format or no times.
    """
    every = read_measured(path)
    launches = [launch for launch in every if (launch.time_us or 0) > 0]
    if not launches:
        columns = "kernel and us, or Kernel_Name, Start_Timestamp and End_Timestamp"
        raise LuthierError(f"{path} has no times of launches above 0: it needs {columns}")
    return MeasuredTimes(launches, Counter(launch.kernel for launch in every if not (launch.time_us or 0) > 0))


def read_measured(path: Path) -> list[MeasuredLaunch]:
    """Return the launches in a profiler's file, in order.

    Counters that were collected in several passes are of the same launch if its kernel, process and dispatch are equal.

    Raises:
        LuthierError: the file cannot be read, or has another format.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(_DATABASE))
        readers = {b"{": _json_rows, b"[": _listed_rows}
        read = _database_rows if start == _DATABASE else readers.get(start.lstrip()[:1], _csv_rows)
        rows = read(path)
        launches: dict[tuple[str, tuple[int, int]], MeasuredLaunch] = {}
        for row in rows:
            launch = launches.setdefault((row.kernel, row.order), row)
            launch.counters.update(row.counters)
            launch.time_us = launch.time_us if row.time_us is None else row.time_us
            launch.items = row.items or launch.items
    except KeyError as problem:
        raise LuthierError(f"cannot read counters from {path}: there is no column or number {problem}") from None
    except (OSError, TypeError, ValueError, csv.Error, sqlite3.Error, msgspec.MsgspecError) as problem:
        raise LuthierError(f"cannot read counters from {path}: {problem}") from None
    if not launches:
        raise LuthierError(f"{path} has neither counters nor times of any kernel")
    return sorted(launches.values(), key=lambda launch: launch.order)


def _database_rows(path: Path) -> Iterator[MeasuredLaunch]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        for pid, dispatch, kernel, counter, value in database.execute(_QUERY):
            order = (int(pid), int(dispatch))
            yield MeasuredLaunch(_SUFFIX.sub("", str(kernel)), order, {str(counter): _finite(value)})
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'kernels'").fetchone():
            for pid, dispatch, kernel, duration, items in database.execute(_TIMES):
                name = _SUFFIX.sub("", str(kernel))
                yield MeasuredLaunch(
                    name, (int(pid), int(dispatch)), time_us=_finite(duration) / 1000, items=int(items)
                )


class _Handle(Struct):
    handle: int


class _CounterName(Struct):
    id: _Handle
    name: str


class _KernelSymbol(Struct):
    formatted_kernel_name: str
    kernel_id: int | None = None


class _GridSize(Struct):
    x: int
    y: int
    z: int


class _DispatchInfo(Struct):
    dispatch_id: int
    kernel_id: int
    grid_size: _GridSize | None = None


class _DispatchData(Struct):
    dispatch_info: _DispatchInfo
    start_timestamp: int = 0
    end_timestamp: int = 0


class _CounterRecord(Struct):
    counter_id: _Handle
    value: float


class _CountedDispatch(Struct):
    dispatch_data: _DispatchData
    records: list[_CounterRecord]


class _CallbackRecords(Struct):
    counter_collection: list[_CountedDispatch] = []


class _Metadata(Struct):
    pid: int = 0


class _ProfiledProcess(Struct):
    """Part of rocprofv3's output about a process; other fields are ignored."""

    counters: list[_CounterName]
    kernel_symbols: list[_KernelSymbol]
    callback_records: _CallbackRecords
    metadata: _Metadata = field(default_factory=_Metadata)


class _ProfilerJson(Struct, rename={"processes": "rocprofiler-sdk-tool"}):
    processes: list[_ProfiledProcess] | _ProfiledProcess


def _json_rows(path: Path) -> Iterator[MeasuredLaunch]:
    processes = msgspec.json.decode(path.read_bytes(), type=_ProfilerJson).processes
    for process in processes if isinstance(processes, list) else [processes]:
        names = {counter.id.handle: counter.name for counter in process.counters}
        symbols = enumerate(process.kernel_symbols)
        kernels = {at if row.kernel_id is None else row.kernel_id: row.formatted_kernel_name for at, row in symbols}
        for dispatch in process.callback_records.counter_collection:
            info = dispatch.dispatch_data.dispatch_info
            counters: Counter[str] = Counter()
            for record in dispatch.records:  # one for each part of the GPU, or their sum
                counters[names[record.counter_id.handle]] += _finite(record.value)  # type: ignore[assignment]
            kernel = _SUFFIX.sub("", kernels[info.kernel_id])
            nanoseconds, size = (
                dispatch.dispatch_data.end_timestamp - dispatch.dispatch_data.start_timestamp,
                info.grid_size,
            )
            yield MeasuredLaunch(
                kernel,
                (process.metadata.pid, info.dispatch_id),
                dict(counters),
                nanoseconds / 1000 if nanoseconds else None,
                None if size is None else size.x * size.y * size.z,
            )


def _listed_rows(path: Path) -> Iterator[MeasuredLaunch]:
    for number, row in enumerate(msgspec.json.decode(path.read_bytes(), type=list[dict[str, object]])):
        yield MeasuredLaunch(_SUFFIX.sub("", str(row["kernel"])), (0, number), {}, *_time_and_size(row))


def _time_and_size(row: Mapping[str, object]) -> tuple[float | None, int | None]:
    """Return the time of a launch in microseconds and its work-items, each None if its row does not have it."""
    sizes = [row[name] for name in (f"Grid_Size_{axis}" for axis in "XYZ") if name in row]
    sizes = sizes or [row[name] for name in ("Grid_Size", "work_items") if row.get(name)]
    items = math.prod(int(str(size)) for size in sizes) if sizes else None
    if "us" in row:
        return (_finite(row["us"]) if row["us"] not in ("", None) else None), items
    if row.get("Start_Timestamp") and row.get("End_Timestamp"):
        return (_finite(row["End_Timestamp"]) - _finite(row["Start_Timestamp"])) / 1000, items
    return None, items


def _csv_rows(path: Path) -> Iterator[MeasuredLaunch]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or ()
        name = _first_of(_NAMES, columns)
        if name is None:
            raise ValueError(f"there is no column {' or '.join(_NAMES)}")
        dispatch, process = _first_of(_DISPATCHES, columns), _first_of(_PROCESSES, columns)
        for number, row in enumerate(reader):
            order = (int(row[process]) if process else 0, int(row[dispatch]) if dispatch else number)
            if "Counter_Name" in columns:
                counters = {row["Counter_Name"]: _finite(row["Counter_Value"])}
            else:
                counters = {counter: _finite(value) for counter, value in row.items() if counter in COUNTERS and value}
            yield MeasuredLaunch(_SUFFIX.sub("", row[name]), order, counters, *_time_and_size(row))


def _finite(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError(f"a counter is {value}")
    return number


def _first_of(names: Iterable[str], columns: Sequence[str]) -> str | None:
    return next((name for name in names if name in columns), None)


class CountedKernel(Struct):
    """Counters of a kernel that a run counted, summed over its launches."""

    names: set[str]
    """Its symbol and, demangled, its name in the source, as profilers may write them."""
    launches: int
    counters: Mapping[str, int]


def counted_kernels(run: RunFolder) -> list[CountedKernel]:
    """Return the kernels whose instructions a run counted.

    Raises:
        LuthierError: a table is damaged.
    """
    numbers = KernelNumbers()
    names: dict[int, set[str]] = {}
    launches: defaultdict[int, int] = defaultdict(int)
    for row in run.rows("kernels", ["kernel", "digest", "name", "launches"]):
        number = numbers.of(row["kernel"], row["digest"])
        names[number] = {name for name in (row["kernel"], row["name"]) if name}
        launches[number] += row["launches"] or 0
    entries = _entries(run, numbers, names)
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for number, rows in by_kernel(run, "counts", ("address", "mnemonic", "executions"), numbers, names):
        for address, mnemonic, executions in zip(*rows.values(), strict=True):
            if mnemonic and executions is not None:
                counts[number].update(dict.fromkeys(sq_counters_of(mnemonic), executions))
                if address == entries.get(number):
                    counts[number]["SQ_WAVES"] += executions
    return [CountedKernel(names[number], launches[number], counters) for number, counters in sorted(counts.items())]


def _entries(run: RunFolder, numbers: KernelNumbers, names: Mapping[int, set[str]]) -> dict[int, int]:
    """Return the address of each kernel's first instruction."""
    entries: dict[int, int] = {}
    if "blocks" in run.names:
        for number, rows in by_kernel(run, "blocks", ("function", "address"), numbers, names):
            own = [address for function, address in zip(*rows.values(), strict=True) if function in names[number]]
            if own:
                entries[number] = min(own)
    return entries


def measured_beside_counted(run: RunFolder, paths: Sequence[Path]) -> Table:
    """Return a row for each counter of each kernel that the run and the files have, or a note why there is none.

    Values are those of one launch: the mean, where launches differ.

    Raises:
        LuthierError: a file cannot be read, the run counted no instructions, or a table is damaged.
    """
    kernels = counted_kernels(run)
    if not kernels:
        raise LuthierError(
            "the run counted no instructions; run it with -o RUN and -t instruction_mix or block_profile"
        )
    launches_of: defaultdict[int | None, dict[str, list[MeasuredLaunch]]] = defaultdict(dict)
    for path in paths:
        for launch in read_measured(path):
            by_name = launches_of[matching(launch.kernel, [kernel.names for kernel in kernels])]
            by_name.setdefault(launch.kernel, []).append(launch)
    rows: list[tuple[Cell, ...]] = []
    for number, kernel in enumerate(kernels):
        launches = [launch for part in launches_of.get(number, {}).values() for launch in part]
        rows += _rows_of(max(kernel.names, key=len), kernel, launches)
    for name, launches in launches_of.get(None, {}).items():
        rows.append((name, None, len(launches), "", None, None, None, "the run did not count this kernel"))
    columns = ("kernel", "launches", "measured launches", "counter", "counted", "measured", "measured/counted", "note")
    return Table("measured counters, of one launch", columns, rows)


def matching(profiled: str, kernels: Sequence[Collection[str]]) -> int | None:
    """Return the position of the kernel that has a profiler's name; a name without parameters fits if only one does.

    Args:
        kernels: names of each kernel.
    """
    exact = [at for at, names in enumerate(kernels) if profiled in names]
    if exact:
        return exact[0]
    base = _without_parameters(profiled)
    near = [at for at, names in enumerate(kernels) if base in map(_without_parameters, names)]
    return near[0] if len(near) == 1 else None


def _without_parameters(name: str) -> str:
    return name.replace("(anonymous namespace)", "{anonymous}").removeprefix("void ").partition("(")[0].rstrip()


def _rows_of(name: str, kernel: CountedKernel, launches: Sequence[MeasuredLaunch]) -> Iterator[tuple[Cell, ...]]:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for launch in launches:
        for counter, value in launch.counters.items():
            if counter in COUNTERS and (counter != "SQ_WAVES" or counter in kernel.counters):
                values[counter].append(value)
    if not values:
        note = "none of its counters can be counted" if launches else "the files have no launch of this kernel"
        yield name, kernel.launches, len(launches), "", None, None, None, note
    for counter, each in values.items():
        counted, mean = kernel.counters.get(counter, 0) / max(kernel.launches, 1), sum(each) / len(each)
        note = "" if counted == mean else "another build or other work" if min(each) == max(each) else "launches differ"
        ratio = round(mean / counted, 4) if counted else None
        yield name, kernel.launches, len(each), counter, _plain(counted), _plain(mean), ratio, note


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) else round(value, 2)
