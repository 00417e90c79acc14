"""``luthier profile``: run a program under the tools that answer first questions, and print the answer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from luthier.cli.common import json_file, put_json, say_fitting, terminal_width, tool_option
from luthier.cli.options import option
from luthier.cli.run import RunOptions, run_watched
from luthier.errors import LuthierError
from luthier.support.extras import require
from luthier.support.files import writing_atomically
from luthier.support.wording import enumerated
from luthier.terminal import say

TOOLS = {
    "divergence": "divergence:histogram=false,top=0",
    "coalescing": "coalescing:top=0",
    "lds_bank_conflicts": "lds_bank_conflicts:top=0",
    "instruction_mix": "instruction_mix",
}
"""Tools of a profile: name -> specification. They count all instructions, lanes, cache lines and LDS cycles; tables are
whole, since the rules of the report judge every instruction."""
PAGE = "report.html"
"""Name of the page in the run folder."""


class ProfileOptions(RunOptions):
    """Options of ``luthier profile``: those of ``luthier run``, with other results."""

    tool: list[str] = tool_option(help=f"a further tool, as for `luthier run`; always run: {', '.join(TOOLS)}")
    output: str | None = option(
        "-o", "--output", title="results", metavar="RUN", help="new folder for results (default: luthier-PROGRAM)"
    )
    json: str | None = option(
        "--json", title="results", metavar="FILE", help="write the summary as JSON; - is standard error"
    )
    page: bool = option(
        "--no-page", default=True, title="results", action="store_false", help=f"do not write {PAGE} to the folder"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.usage = "luthier profile [OPTION ...] [--] PROGRAM [ARGUMENT ...]"
    ProfileOptions.declare(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    args.tool = _tools(args.tool)
    is_named = bool(args.output)
    args.output = args.output or _free_folder(command[0] if command else "program")
    options = ProfileOptions.read(args)
    if options.project is not None:
        raise LuthierError("luthier profile runs tools, and --project measures the program's own code: use luthier run")
    if options.json:
        json_file(options.json)
    for module in ("graphlay", "youplot") if options.page else ():
        require(module)
    try:
        return run_watched(options.but(json=None), lambda: _answer(options))
    finally:
        if not is_named:
            with suppress(OSError):  # not empty, as usual
                Path(args.output).rmdir()


def _tools(added: Sequence[str]) -> list[str]:
    """Return the specifications of the tools of a profile; those of the user replace the same tools.

    Raises:
        LuthierError: a tool is not installed.
    """
    from luthier.tool.tool import find_entry_points, find_tool

    named = {find_tool(specification)[1].name for specification in added}
    installed = {point.name for point in find_entry_points().values()}
    if missing := [name for name in TOOLS if name not in installed]:
        noun = "tool" if len(missing) == 1 else "tools"
        raise LuthierError(
            f"luthier profile needs the {noun} {enumerated(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            "installed: install what ships with Luthier (docs/tools.md), or run others with `luthier run -t`"
        )
    return [*(specification for name, specification in TOOLS.items() if name not in named), *added]


def _free_folder(program: str) -> str:
    """Return the name of a folder that does not exist: ``luthier-PROGRAM``, ``luthier-PROGRAM-2``, …"""
    name = f"luthier-{Path(program).name}"
    number = 1
    while Path(folder := name if number == 1 else f"{name}-{number}").exists():
        number += 1
    return folder


def _answer(options: ProfileOptions) -> None:
    """Print the summary on standard error, since standard output belongs to the program, and write the page.

    Raises:
        LuthierError: a file cannot be written; the summary has been printed then.
    """
    from luthier.report.analysis import AnalysedRun
    from luthier.report.digest import RunDigest
    from luthier.report.page import write_page
    from luthier.run.folder import RunFolder

    assert options.output is not None
    folder = RunFolder(options.output)
    page = folder.path / PAGE
    analysed = AnalysedRun.of(folder)
    digest = RunDigest.of(analysed, mangled=options.mangled)
    for line in digest.lines(terminal_width(sys.stderr)):
        say(line, file=sys.stderr)
    if options.json:
        data = digest.to_json() | {"run": options.output, "page": str(page) if options.page else None}
        put_json(options.json, data, stream=sys.stderr)
    if options.page:
        with writing_atomically(page) as file:
            write_page(analysed, file)
    say_fitting(str(page if options.page else folder.path), file=sys.stderr)
