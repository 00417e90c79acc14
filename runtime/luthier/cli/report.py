"""``luthier report``: what runs left, as tables, files, a page, or a comparison."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from luthier.cli.common import add_mangled_argument, shown_tables
from luthier.errors import LuthierError
from luthier.files import writing_atomically
from luthier.terminal import data_output

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder
    from luthier.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "folder",
        metavar="RUN",
        type=Path,
        nargs="+",
        help="what `luthier run -o RUN` wrote; several are reported as one",
    )
    parser.add_argument(
        "--format",
        choices=("text", "html", "csv", "json", "perfetto"),
        default="text",
        help="html: a page that is one file; perfetto: launches on a time line, for ui.perfetto.dev (default: text)",
    )
    parser.add_argument(
        "--against", metavar="RUN", type=Path, help="text, json and html: what is different from that run"
    )
    parser.add_argument(
        "--table", metavar="NAME", help="csv and json: this table alone; csv needs it, or a folder to write all to"
    )
    trace = parser.add_argument_group("a table that need not fit into memory, such as a trace (text and json)")
    trace.add_argument("--trace", metavar="NAME", help="summarise this table, e.g. accesses for trace-accesses.parquet")
    trace.add_argument(
        "--by",
        metavar="COLUMN[/SIZE][+…]",
        action="append",
        help="group by these columns, or ranges of SIZE values, e.g. kernel+pc or address/4096; may be repeated",
    )
    trace.add_argument("--sum", metavar="COLUMN[+…]", help="add these columns up in each group, e.g. size")
    trace.add_argument("--top", metavar="N", type=int, default=20, help="so many groups, 0: all (default: 20)")
    trace.add_argument(
        "--memory", metavar="MIB", type=int, help="what grouping may use; the rest goes to disk (default: 256)"
    )
    add_mangled_argument(parser)
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="where it goes (default: standard output); a folder for all tables as csv"
    )


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    if args.table is not None and args.format not in ("csv", "json"):
        raise LuthierError("--table is for the formats csv and json")
    if args.against is not None and (args.format not in ("text", "json", "html") or args.table is not None):
        raise LuthierError("a comparison (--against) has the formats text, json and html, and no --table")
    if args.trace is None and (args.by or args.sum or args.memory is not None):
        raise LuthierError("--by, --sum and --memory are for --trace")
    if args.trace is not None and (args.format not in ("text", "json") or args.table or args.against):
        raise LuthierError("a summary (--trace) has the formats text and json, and neither --table nor --against")
    if args.top < 0:
        raise LuthierError(f"--top {args.top} is no number of groups")
    with _folder(args.folder) as folder:
        return _report(folder, args)


def _report(folder: RunFolder, args: argparse.Namespace) -> int:
    from luthier.run import export

    if args.format == "csv" and args.table is None:
        if not args.output:
            raise LuthierError(f"csv is of one table (--table {'|'.join(folder.names)}) or goes to a folder (-o)")
        export.write_csv_folder(folder, Path(args.output))
        return 0
    write: dict[str, Callable[[IO[bytes]], None]] = {
        "text": lambda out: _write_text(folder, args, out),
        "json": lambda out: export.write_json(folder, out, args.table),
        "csv": lambda out: export.write_csv(folder, args.table, out),
        "perfetto": lambda out: export.write_perfetto(folder, out),
        "html": lambda out: _write_html(folder, out),
    }
    if args.against is not None:
        write = {args.format: lambda out: _write_comparison(folder, args, out)}
    if args.trace is not None:
        write = {args.format: lambda out: _write_summaries(folder, args, out)}
    if args.output:
        with writing_atomically(args.output) as file:
            write[args.format](file)
    else:
        write[args.format](data_output())
        sys.stdout.flush()
    return 0


@contextmanager
def _folder(paths: list[Path]) -> Iterator[RunFolder]:
    """One run, or several merged, for as long as the block takes."""
    from luthier.run.folder import RunFolder

    runs = [RunFolder(path) for path in paths]
    if len(runs) == 1:
        yield runs[0]
        return
    from luthier.report.merge import merge

    with tempfile.TemporaryDirectory(prefix="luthier-merge-") as folder:
        merge(runs, Path(folder))
        yield RunFolder(Path(folder))


def _write_html(folder: RunFolder, out: IO[bytes]) -> None:
    from luthier.report import write_page

    write_page(folder, out)


def _write_comparison(folder: RunFolder, args: argparse.Namespace, out: IO[bytes]) -> None:
    from luthier.report.compare import as_json, changed, compared
    from luthier.run.folder import RunFolder

    against = RunFolder(args.against)
    if args.format == "html":
        from luthier.report import write_comparison

        write_comparison(folder, against, out)
        return
    if args.format == "json":
        out.write(json.dumps(as_json(folder, against), indent=2).encode() + b"\n")
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
        out.write(json.dumps([table.to_json() for table in tables], indent=2, default=str).encode() + b"\n")
        return
    out.write(f"{_text(tables, args)}\n".encode())


def _text(tables: Iterable[Table], args: argparse.Namespace) -> str:
    return "\n\n".join(shown_tables(tables, args, None if args.output else sys.stdout))


def _write_text(folder: RunFolder, args: argparse.Namespace, out: IO[bytes]) -> None:
    out.write(f"{_text((table for table in folder.shown() if table.rows), args)}\n".encode())
