"""``luthier report``: show results of runs as tables, files, a page, or a comparison."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from msgspec import Struct

from luthier.cli.common import HelpOf, add_mangled_argument, shown_tables, terminal_width
from luthier.errors import LuthierError
from luthier.report.formats import FORMATS, ReportFormat
from luthier.support import strict_json
from luthier.support.files import writing_atomically
from luthier.support.private_folder import private_folder
from luthier.terminal import data_output, say, visible

if TYPE_CHECKING:
    from luthier.report.conditions import Verdict
    from luthier.run.folder import RunFolder
    from luthier.support.table import Table

FAILED = 1
"""Exit code if a condition holds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "folder",
        metavar="RUN",
        type=Path,
        nargs="+",
        help="results of `luthier run -o RUN`; several are merged. Or thread traces of a GPU: .att files, or folders "
        "that have some at most three folders deep",
    )
    format = parser.add_argument(
        "--format", choices=("text", *FORMATS.names()), default="text", help="%(formats)s (default: text)"
    )
    format.formats = HelpOf(FORMATS)  # type: ignore[attr-defined]
    parser.add_argument("--against", metavar="RUN", type=Path, help="text, json and html: compare with this run")
    parser.add_argument(
        "--table",
        metavar="NAME",
        help="write only this table; csv needs it, or a folder for all tables; as text also the tables of a tool",
    )
    parser.add_argument("--all", action="store_true", help="text: after the summary, also print the tables")
    parser.add_argument(
        "--fail-if",
        metavar="CONDITION",
        action="append",
        default=[],
        help="exit with 1 if the condition holds for a row of a tool's table, e.g. 'coalescing.efficiency < 50', or, "
        "with --against, for a difference, e.g. 'instructions > 5%%'; repeatable",
    )
    parser.add_argument(
        "--source-path",
        metavar="FOLDER",
        type=Path,
        action="append",
        default=[],
        help="html: also look for source files here; repeatable",
    )
    parser.add_argument(
        "--counters",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="text, json, csv and html: compare the counts with counters that a GPU counted (CSV, JSON or rocpd "
        "database of rocprofv3, pmc_perf.csv of rocprof-compute) or show a thread trace's stalls beside them "
        "(stats_*.csv of rocprofv3 --att); repeatable",
    )
    trace = parser.add_argument_group("tables that may exceed memory, such as traces (text and json)")
    trace.add_argument("--trace", metavar="NAME", help="summarise this table, e.g. accesses for trace-accesses.parquet")
    trace.add_argument(
        "--by",
        metavar="COLUMN[/SIZE][+…]",
        action="append",
        help="group by these columns, or by ranges of SIZE values, e.g. kernel+pc or address/4096; repeatable. "
        "Without --trace: executed instructions by source line, function, block or address, or launches by the host's "
        "stack of calls, range (roctx) or python functions (text, json and csv)",
    )
    trace.add_argument("--sum", metavar="COLUMN[+…]", help="sum these columns in each group, e.g. size")
    trace.add_argument("--top", metavar="N", type=int, default=20, help="number of groups, 0: all (default: 20)")
    trace.add_argument(
        "--memory", metavar="MIB", type=int, help="memory limit of grouping; the rest goes to disk (default: 256)"
    )
    parser.add_argument(
        "--number",
        metavar="NAME",
        help="folded: sum launches, work-items, waves, instructions, lanes or time (default: instructions, if a tool "
        "counted them, otherwise launches)",
    )
    add_mangled_argument(parser)
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="file for the report (default: standard output); folder for csv tables"
    )


class _OptionUse(Struct, frozen=True):
    """Describes what an option works with."""

    option: str
    formats: Sequence[str]
    """Formats that it works with in any case."""
    needs: str = ""
    """Field of `ReportFormat` that it needs of other formats."""
    excludes: Sequence[str] = ()
    """Options that it does not work with."""

    def check(self, args: argparse.Namespace, format: ReportFormat | None) -> None:
        """Raise an error if the option is given with a format or an option that it does not work with."""
        if not _is_given(args, self.option):
            return
        fits = args.format in self.formats or (format is not None and bool(self.needs and getattr(format, self.needs)))
        if fits and not any(_is_given(args, option) for option in self.excludes):
            return
        formats = [*self.formats, *(_formats_with(self.needs) if self.needs else ())]
        plural = "s" if len(formats) > 1 else ""
        excluded = f", and not with {_listed(self.excludes)}" if self.excludes else ""
        raise LuthierError(f"{self.option} works with the format{plural} {_listed(formats)}{excluded}")


_USES = (
    _OptionUse("--table", ("text",), "write_table"),
    _OptionUse("--all", ("text",), "", ("--table", "--against", "--by", "--trace", "--counters")),
    _OptionUse("--against", ("text",), "compare", ("--table",)),
    _OptionUse("--counters", ("text", "json", "csv"), "measured", ("--table", "--against", "--by", "--trace")),
    _OptionUse("--trace", ("text", "json"), "", ("--table", "--against")),
    _OptionUse("--source-path", (), "sources", ("--against",)),
    _OptionUse("--number", (), "numbers"),
)
_BY = _OptionUse("--by", ("text", "json", "csv"), "", ("--table", "--against"))
"""The use of ``--by`` without ``--trace``."""


def run(args: argparse.Namespace) -> int:
    """Write the report and return the exit status."""
    from luthier.report.conditions import Condition, judge
    from luthier.run.folder import RunFolder

    format = None if args.format == "text" else FORMATS.load(args.format)
    if args.top < 0:
        raise LuthierError(f"--top must be at least 0, not {args.top}")
    if traces := _raw_traces(args):
        return _report_traces(traces, args)
    _check_options(args, format)
    conditions = [Condition.parse(text) for text in args.fail_if]
    with _folder(args.folder) as folder:
        verdicts = judge(folder, conditions, RunFolder(args.against) if args.against and conditions else None)
        with suppress(BrokenPipeError) if conditions else nullcontext():  # the verdicts go to standard error
            _report(folder, format, args, verdicts)
    return _print_verdicts(verdicts, args)


def _check_options(args: argparse.Namespace, format: ReportFormat | None) -> None:
    """Check the combination of options.

    Raises:
        LuthierError: some options do not work together, or with the format.
    """
    for use in _USES:
        use.check(args, format)
    if args.trace is None and args.by:
        _check_places(args, format)
    if args.trace is None and (args.sum or args.memory is not None):
        raise LuthierError("--sum and --memory need --trace")
    if args.format == "html" and not args.output and sys.stdout.isatty():
        raise LuthierError("a page cannot be shown in a terminal: write it to a file with -o report.html")


def _is_given(args: argparse.Namespace, option: str) -> bool:
    value = getattr(args, option.removeprefix("--").replace("-", "_"))
    return value is not None and value is not False and value != []


def _raw_traces(args: argparse.Namespace) -> list[Path]:
    """Return the thread traces that are to be shown; [] if the arguments name runs.

    Raises:
        LuthierError: an option does not go with thread traces.
    """
    from luthier.report.raw_traces import raw_traces

    traces = [] if any((path / "summary.json").exists() for path in args.folder) else raw_traces(args.folder)
    of_runs = (
        "--table",
        "--against",
        "--fail-if",
        "--source-path",
        "--counters",
        "--trace",
        "--by",
        "--sum",
        "--memory",
        "--number",
        "--all",
    )
    if traces and (args.format not in ("text", "json") or any(_is_given(args, option) for option in of_runs)):
        raise LuthierError(
            "thread traces have the formats text and json; of the other options, only --top and -o apply to them"
        )
    return traces


def _report_traces(traces: Sequence[Path], args: argparse.Namespace) -> int:
    """Write the tables of thread traces and return the exit status."""
    from luthier.report.raw_traces import tables_of_traces

    tables = tables_of_traces(traces, args.top)
    text = _text(tables, args) if args.format == "text" else _json(tables)
    if args.output:
        with writing_atomically(args.output) as file:
            file.write(f"{text}\n".encode())
    else:
        data_output().write(f"{text}\n".encode())
        sys.stdout.flush()
    return 0


def _json(tables: Iterable[Table]) -> str:
    return strict_json.dumps([table.to_json() for table in tables], indent=2, default=str)


def _print_verdicts(verdicts: list[Verdict], args: argparse.Namespace) -> int:
    """Print the verdicts that fail on standard error and return the exit status."""
    from luthier.objects.names import as_in_source
    from luthier.support.table import Table

    lines = [[line] for verdict in verdicts for line in verdict.lines()]
    for line in lines if args.mangled else as_in_source([Table("", ("line",), lines)])[0].rows:
        say(f"luthier report: {line[0]}", file=sys.stderr)
    return FAILED if any(verdict.violations for verdict in verdicts) else 0


def _formats_with(field: str) -> Iterator[str]:
    """Yield the formats in which a field is set, leaving out those that cannot be imported."""
    for name in FORMATS.names():
        with suppress(LuthierError):
            if getattr(FORMATS.load(name), field):
                yield name


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _report(
    folder: RunFolder, format: ReportFormat | None, args: argparse.Namespace, verdicts: Sequence[Verdict]
) -> None:
    one_table = _compares(format, args) or (args.trace is None and args.by)
    if not one_table and format is not None and format.write is None and args.table is None and args.against is None:
        if not args.output:
            tables = "|".join(folder.names)
            raise LuthierError(f"{args.format} writes one table (--table {tables}), or all to a folder (-o)")
        _write_tables(folder, format, Path(args.output))
        return
    write = _writer(folder, format, args, verdicts)
    if args.output:
        with writing_atomically(args.output) as file:
            write(file)
    else:
        write(data_output())
        sys.stdout.flush()


def _writer(
    folder: RunFolder, format: ReportFormat | None, args: argparse.Namespace, verdicts: Sequence[Verdict]
) -> Callable[[IO[bytes]], None]:
    """Return the function that writes the report to one file."""
    if args.trace is not None:
        return lambda out: _write_summaries(folder, args, out)
    if args.by or _compares(format, args):
        return lambda out: _write_chosen(folder, args, out)
    if args.against is not None:
        return lambda out: _write_comparison(folder, format, args, verdicts, out)
    if format is None and args.table is not None:
        return lambda out: _write_table(folder, args, out)
    if format is None:
        return lambda out: _write_text(folder, args, out)
    if args.table is not None and (write_table := format.write_table) is not None:
        return lambda out: write_table(folder, args.table, out)
    assert format.write is not None
    more: dict[str, object] = {"verdicts": verdicts} if format.verdicts else {}
    more |= {"roots": args.source_path} if format.sources else {}
    more |= {"number": args.number} if format.numbers else {}
    more |= {"measured": _measured(folder, args.counters, 0)} if args.counters else {}
    return partial(format.write, folder, **more)


def _compares(format: ReportFormat | None, args: argparse.Namespace) -> bool:
    """Return whether the report only compares with what a GPU measured."""
    return bool(args.counters) and (format is None or not format.measured)


def _measured(folder: RunFolder, paths: Sequence[Path], top: int) -> list[Table]:
    """Return tables of what profilers measured beside what the run counted.

    Args:
        top: the most instructions of thread traces; 0: all.
    """
    from luthier.report.measured import measured_beside_counted
    from luthier.report.thread_trace import is_thread_trace, stalls_beside_counts

    traces = [path for path in paths if is_thread_trace(path)]
    counters = [path for path in paths if path not in traces]
    tables = [measured_beside_counted(folder, counters)] if counters else []
    return tables + ([stalls_beside_counts(folder, traces, top)] if traces else [])


def _write_tables(folder: RunFolder, format: ReportFormat, out: Path) -> None:
    """Write all tables, each to a new file, or none of them.

    Raises:
        LuthierError: a table cannot be written, or its file exists.
    """
    assert format.write_table is not None
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise LuthierError(f"cannot write {out}: {problem.strerror or problem}") from problem
    paths = {name: out / f"{name}{format.suffix}" for name in folder.names}
    for path in paths.values():
        if os.path.lexists(path):
            raise LuthierError(f"cannot write {path}: {os.strerror(errno.EEXIST)}")
    with ExitStack() as written:
        for name, path in paths.items():
            format.write_table(folder, name, written.enter_context(writing_atomically(path)))


@contextmanager
def _folder(paths: list[Path]) -> Iterator[RunFolder]:
    """Provide one run, or several merged while the block runs."""
    from luthier.run.folder import RunFolder

    runs = [RunFolder(path) for path in paths]
    if len(runs) == 1:
        yield runs[0]
        return
    from luthier.report.merge import merge

    with private_folder() as folder:
        merge(runs, folder / "merged")
        yield RunFolder(folder / "merged")


def _write_comparison(
    folder: RunFolder,
    format: ReportFormat | None,
    args: argparse.Namespace,
    verdicts: Sequence[Verdict],
    out: IO[bytes],
) -> None:
    from luthier.report.compare import changed, compared
    from luthier.run.folder import RunFolder

    against = RunFolder(args.against)
    if format is not None:
        assert format.compare is not None
        format.compare(folder, against, out, **({"verdicts": verdicts} if format.verdicts else {}))
        return
    tables = [changed(table) for table in compared(folder, against) if table.rows]
    out.write(f"{_text(tables, args) or 'the runs have neither kernels nor variables'}\n".encode())


def _write_summaries(folder: RunFolder, args: argparse.Namespace, out: IO[bytes]) -> None:
    from luthier.report.traces import MEMORY, Key, summaries

    by = [[Key.parse(one) for one in text.split("+")] for text in args.by or ()] or [[]]
    sums = args.sum.split("+") if args.sum else []
    memory = MEMORY if args.memory is None else args.memory
    tables = summaries(folder, args.trace, by, sums, args.top, memory)
    if args.format == "json":
        out.write(f"{_json(tables)}\n".encode())
        return
    out.write(f"{_text(tables, args)}\n".encode())


def _check_places(args: argparse.Namespace, format: ReportFormat | None) -> None:
    """Check that ``--by`` names kinds of places, and that no other option excludes it.

    Raises:
        LuthierError: it does not, or one does.
    """
    from luthier.report.places import KINDS
    from luthier.report.stacks import GROUPS
    from luthier.support.suggestions import did_you_mean

    for kind in args.by:
        if kind not in (known := (*KINDS, *GROUPS)):
            hint = did_you_mean(kind, known)
            raise LuthierError(f"--by {kind} needs a table (--trace); without it, --by takes {', '.join(known)}{hint}")
    _BY.check(args, format)
    if args.format == "csv" and len(args.by) > 1:
        raise LuthierError("csv writes one table: give --by once")


def _write_chosen(folder: RunFolder, args: argparse.Namespace, out: IO[bytes]) -> None:
    from luthier.report.places import by_place
    from luthier.report.stacks import GROUPS, by_stack

    if args.counters:
        tables = _measured(folder, args.counters, args.top)
        if args.format == "csv" and len(tables) > 1:
            raise LuthierError("csv writes one table: give --counters thread traces or files of counters, not both")
    else:
        tables = [(by_stack if kind in GROUPS else by_place)(folder, kind, args.top) for kind in args.by]
    if args.format == "json":
        text = _json(tables)
    elif args.format == "csv":
        text = tables[0].csv().rstrip("\n")
    else:
        text = _text(tables, args)
    out.write(f"{text}\n".encode())


def _text(tables: Iterable[Table], args: argparse.Namespace) -> str:
    return "\n\n".join(shown_tables(tables, None if args.output else sys.stdout, mangled=args.mangled))


def _write_text(folder: RunFolder, args: argparse.Namespace, out: IO[bytes]) -> None:
    """Write the summary, with ``--all`` also the tables."""
    from luthier.report.analysis import AnalysedRun
    from luthier.report.digest import RunDigest
    from luthier.support.table import wrapped

    width = 0 if args.output else terminal_width(sys.stdout)
    parts = list(RunDigest.of(AnalysedRun.of(folder), mangled=args.mangled).lines(width))
    if args.all:
        parts += ["", _text((table for table in folder.shown() if table.rows), args)]
    else:
        names = ", ".join([*_names_of_tools(folder), *folder.names])
        details = f"details: luthier report {args.folder[0]} --all, --by line, --format html, or --table {names}"
        parts.append(wrapped(visible(details), width))
    out.write("".join(f"{part}\n" for part in parts).encode())


def _names_of_tools(folder: RunFolder) -> list[str]:
    return list(dict.fromkeys(tool.tool for tool in folder.summary.tools if tool.tables))


def _write_table(folder: RunFolder, args: argparse.Namespace, out: IO[bytes]) -> None:
    """Write the tables of a tool, or a table of the run."""
    from luthier.support.suggestions import did_you_mean

    tools = _names_of_tools(folder)
    if args.table not in (*tools, *folder.names):
        names = [*tools, *folder.names]
        hint = did_you_mean(args.table, names)
        raise LuthierError(f"{folder.path} has no table {args.table!r}; it has {', '.join(names)}{hint}")
    tables = folder.tool_tables(args.table) if args.table in tools else [folder.whole(args.table)]
    out.write(f"{_text(tables, args)}\n".encode())
