"""``luthier merge``: merge runs into one."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", metavar="RUN", type=Path, nargs="+", help="results of `luthier run -o RUN`")
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="new or empty folder")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from luthier.report.merge import merge
    from luthier.run.folder import RunFolder

    merge([RunFolder(folder) for folder in args.folder], args.output)
    return 0
