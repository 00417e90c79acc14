"""``luthier merge``: many runs as one."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", metavar="RUN", type=Path, nargs="+", help="what `luthier run -o RUN` wrote")
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="a new folder, or an empty one")


def run(args: argparse.Namespace) -> int:
    """Write the merged run."""
    from luthier.report.merge import merge
    from luthier.run.folder import RunFolder

    merge([RunFolder(folder) for folder in args.folder], args.output)
    return 0
