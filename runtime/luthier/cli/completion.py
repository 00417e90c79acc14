"""``luthier completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import argparse
import importlib

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "shell",
        choices=SHELLS,
        help="bash: luthier completion bash > ~/.local/share/bash-completion/completions/luthier; "
        "zsh: into a file _luthier in a folder of $fpath; fish: ~/.config/fish/completions/luthier.fish",
    )


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    print(shtab.complete(whole_parser(), args.shell))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """The command line with all of its sub-commands, which `luthier.cli.main` imports only as they are used."""
    from luthier.cli.main import every_command

    parser = argparse.ArgumentParser(prog="luthier")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers()
    for name, (module, summary) in every_command().items():
        importlib.import_module(module).add_arguments(commands.add_parser(name, help=summary, description=summary))
    return parser
