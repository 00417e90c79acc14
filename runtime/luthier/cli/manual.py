"""`luthier manual`: print the manual page, which wheels contain."""

from __future__ import annotations

import argparse
import importlib
import re

from luthier import __version__
from luthier.cli.main import Parser, every_command
from luthier.terminal import say_raw

_WIDTH = 76
"""Columns of the help, which the page indents."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options: none."""
    parser.epilog = "`man luthier` shows it where a wheel is installed; otherwise: luthier manual | man -l -"


def run(args: argparse.Namespace) -> int:
    """Print the page."""
    say_raw(page())
    return 0


def page() -> str:
    """Return the manual page in roff: the help of every command."""
    commands = every_command()
    lines = [
        f'.TH LUTHIER 1 "" "luthier {__version__}"',
        ".SH NAME\nluthier \\- instrument AMD GPU programs",
        ".SH SYNOPSIS\n.B luthier\nCOMMAND [OPTION ...]",
        ".SH COMMANDS",
        *(f".TP\n.B {_escaped(name)}\n{_escaped(summary)}" for name, (_, summary) in commands.items()),
    ]
    for name, (module, summary) in commands.items():
        parser = Parser(prog=f"luthier {name}", description=summary, formatter_class=_Help)
        importlib.import_module(module).add_arguments(parser)
        lines.append(f'.SH "luthier {_escaped(name)}"\n.nf\n{_escaped(parser.format_help().rstrip())}\n.fi')
    return "\n".join(lines) + "\n"


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)


def _escaped(text: str) -> str:
    """Return a text that roff prints unchanged."""
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.MULTILINE)
