"""``luthier verify FILE.lcap``: captured launches, original and patched."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from luthier.cli.common import print_json, say_fitting
from luthier.cli.replay import captures_of, rows_of
from luthier.errors import LuthierError
from luthier.terminal import say_text, visible
from luthier.tool import parse_tools


def run(args: argparse.Namespace) -> int:
    """Verify the captures that the command line names; the exit status."""
    for name in ("target", "object", "kernel", "launch", "write_launch"):
        if getattr(args, name):
            raise LuthierError(
                f"--{name.replace('_', '-')} is for code objects; a capture has one launch of one kernel"
            )
    parse_tools(args.tool)  # a wrong one is told before anything runs
    options = {name: getattr(args, name) for name in ("device", "tool", "strict", "hoist", "time_limit")}
    rows = []
    for row in rows_of(captures_of([args.file]), options, args.scheduler, "luthier.cli.verify_process"):
        rows.append(row)
        if not args.json:
            _print(row)
    if args.json:
        print_json([{name: value for name, value in row.items() if name not in ("lines", "refusals")} for row in rows])
    return max(int(row["status"]) for row in rows)


def _print(row: Mapping[str, Any]) -> None:
    say_text(f"{visible(row['file'])}: {row['what']}")
    for line in row.get("lines", ()):
        say_text(f"  {line}")
    for line in row.get("refusals", ()):
        say_fitting(line, file=sys.stderr)
