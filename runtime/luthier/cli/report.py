"""``luthier report``: what a run left, as tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from luthier.cli.common import writing_atomically
from luthier.errors import LuthierError

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", metavar="RUN", type=Path, help="what `luthier run -o RUN` wrote")
    parser.add_argument(
        "--format",
        choices=("text", "html", "csv", "json", "perfetto"),
        default="text",
        help="html: a page that is one file; perfetto: launches on a time line, for ui.perfetto.dev (default: text)",
    )
    parser.add_argument(
        "--table", metavar="NAME", help="csv and json: this table alone; csv needs it, or a folder to write all to"
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="where it goes (default: standard output); a folder for all tables as csv"
    )


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    from luthier.run import export
    from luthier.run.folder import RunFolder

    if args.table is not None and args.format not in ("csv", "json"):
        raise LuthierError("--table is for the formats csv and json")
    folder = RunFolder(args.folder)
    if args.format == "csv" and args.table is None:
        if not args.output:
            raise LuthierError(f"csv is of one table (--table {'|'.join(folder.names)}) or goes to a folder (-o)")
        export.write_csv_folder(folder, Path(args.output))
        return 0
    write: dict[str, Callable[[IO[bytes]], None]] = {
        "text": lambda out: _write_text(folder, out),
        "json": lambda out: export.write_json(folder, out, args.table),
        "csv": lambda out: export.write_csv(folder, args.table, out),
        "perfetto": lambda out: export.write_perfetto(folder, out),
        "html": lambda out: _write_html(folder, out),
    }
    if args.output:
        with writing_atomically(args.output) as file:
            write[args.format](file)
    else:
        write[args.format](sys.stdout.buffer)
        sys.stdout.flush()
    return 0


def _write_html(folder: RunFolder, out: IO[bytes]) -> None:
    from luthier.report import write_page

    write_page(folder, out)


def _write_text(folder: RunFolder, out: IO[bytes]) -> None:
    text = "\n\n".join(table.text() for table in folder.shown() if table.rows)
    out.write(f"{text}\n".encode())
