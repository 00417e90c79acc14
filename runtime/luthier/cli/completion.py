"""``luthier completion``: print a shell script that completes commands, options, tools, devices and GPUs."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from collections.abc import Iterator
from typing import Any

from luthier.terminal import say, say_raw

SHELLS = ("bash", "zsh", "fish")
_FILES = frozenset(("FILE", "OUT", "PLAN.toml", "PROGRAM", "SOURCE"))
_FOLDERS = frozenset(("DIR", "RUN"))
"""Metavars of arguments that are folders."""
_TOOLS = "TOOL[:OPT=VAL,...]"
_WORDS = {"DEVICE": "devices", "DEVICES": "devices", "GPU,...": "gpus"}
"""Metavar -> names that this command prints."""
_BASH = r"""
_luthier() {
  # bash splits words at colons and equals signs, and replaces what follows the last of these.
  local typed=${COMP_LINE:0:COMP_POINT} words
  read -ra words <<< "$typed"
  [[ $typed == *[[:space:]] ]] && words+=("")
  COMP_WORDS=("${words[@]}")
  COMP_CWORD=$((${#words[@]} - 1))
  local word=${words[COMP_CWORD]}
  _shtab_luthier
  COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[:=]}"}"}")
  [[ ${#COMPREPLY[@]} = 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -o bashdefault -F _luthier luthier
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "shell",
        choices=SHELLS,
        help="bash: luthier completion bash > ~/.local/share/bash-completion/completions/luthier; "
        "zsh: write it to _luthier in a folder of $fpath; fish: ~/.config/fish/completions/luthier.fish",
    )

    parser.add_argument("--words", choices=("tools", *dict.fromkeys(_WORDS.values())), help=argparse.SUPPRESS)
    parser.add_argument("word", nargs="?", default="", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Print the script, or with ``--words`` what the beginning of a word may become."""
    if args.words:
        names = {"tools": _tools, "devices": _devices, "gpus": _gpus}[args.words]
        for word in names(args.word):
            say(word)
        return 0
    import shtab

    say_raw(shtab.complete(whole_parser(), args.shell) + (_BASH if args.shell == "bash" else ""))
    return 0


def _tools(word: str) -> Iterator[str]:
    """Yield tools, or if a tool's name is complete, the word with each option of the tool."""
    from luthier.tool.tool import find_entry_points, tool_class

    points = find_entry_points()
    name = max((name for name in points if word.startswith(f"{name}:")), key=len, default="")
    if not name:
        yield from sorted(points)
        return
    before = max(f"{name}:", word[: word.rfind(",") + 1], key=len)
    for field in dataclasses.fields(tool_class(name).Options):
        yield f"{before}{field.name}="


def _devices(word: str) -> Iterator[str]:
    """Yield emulated devices, after those that the word has before its last comma."""
    from luthier.arch.targets import TARGETS

    before = word[: word.rfind(",") + 1]
    return (f"{before}emu:{name}" for name, target in TARGETS.items() if target.device_id is not None)


def _gpus(word: str) -> Iterator[str]:
    """Yield GPUs with a machine model, likewise."""
    from luthier.projection import machine_names

    before = word[: word.rfind(",") + 1]
    return (f"{before}{name}" for name in machine_names())


def _from_words(what: str) -> Any:
    """Return how shells complete a word by running this command."""
    function = f"_luthier_{what}"

    def ask(word: str) -> str:
        return f"luthier completion fish {word} --words {what} 2>/dev/null"

    return {
        "bash": function,
        "zsh": function,
        "fish": f"({ask('(commandline -ct)')})",
        "preamble": {
            "bash": f'{function}() {{ compgen -W "$({ask("$1")})" -- "$1"; }}',
            "zsh": f'{function}() {{ compadd -S "" -- ${{(f)"$({ask("$PREFIX")})"}} }}',
        },
    }


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
            elif action.metavar == _TOOLS:
                action.metavar = "TOOL"  # zsh would take the colon for the end
                action.complete = _from_words("tools")  # type: ignore[attr-defined]
            elif action.metavar in _WORDS:
                action.complete = _from_words(_WORDS[action.metavar])  # type: ignore[attr-defined]
    return parser
