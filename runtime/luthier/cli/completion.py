"""``luthier completion``: print a shell script that completes commands and options."""

from __future__ import annotations

import argparse
import importlib

from luthier.terminal import say_raw

SHELLS = ("bash", "zsh", "fish")
_FILES = frozenset(("FILE", "OUT", "PLAN.toml", "PROGRAM", "SOURCE"))
_FOLDERS = frozenset(("DIR", "RUN"))
"""Metavars of arguments that are folders."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "shell",
        choices=SHELLS,
        help="bash: luthier completion bash > ~/.local/share/bash-completion/completions/luthier; "
        "zsh: write it to _luthier in a folder of $fpath; fish: ~/.config/fish/completions/luthier.fish",
    )


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    say_raw(shtab.complete(whole_parser(), args.shell))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Return a parser with all sub-commands, and with file or folder completion for their arguments."""
    import shtab

    from luthier.cli.main import every_command

    parser = argparse.ArgumentParser(prog="luthier")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers()
    for name, (module, summary) in every_command().items():
        command = commands.add_parser(name, help=summary, description=summary)
        importlib.import_module(module).add_arguments(command)
        for action in command._actions:
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar in _FOLDERS:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return parser
