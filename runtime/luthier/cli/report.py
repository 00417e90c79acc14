"""``luthier report``: what a run left, as tables."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from luthier.cli.common import write_atomically


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", metavar="RUN", type=Path, help="what `luthier run -o RUN` wrote")
    parser.add_argument("--format", choices=("text", "csv", "json"), default="text", help="default: text")
    parser.add_argument("-o", "--output", metavar="OUT", help="where it goes (default: standard output)")


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    from luthier.run.record import read

    _, tables = read(args.folder)
    if args.format == "json":
        text = json.dumps([table.to_json() for table in tables], indent=2)
    elif args.format == "csv":
        text = "\n".join(f"# {table.title}\n{table.csv()}" for table in tables)
    else:
        text = "\n\n".join(table.text() for table in tables)
    if args.output:
        write_atomically(args.output, f"{text}\n".encode())
    else:
        sys.stdout.write(f"{text}\n")
    return 0
