"""Entry point of the `luthier` command: find the sub-command, parse, run, and turn errors into exit codes."""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import importlib.machinery
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn, Protocol

from luthier import __version__
from luthier.errors import LuthierError
from luthier.support.losses import forget_losses, losses
from luthier.support.shortage import shortage
from luthier.support.suggestions import did_you_mean
from luthier.terminal import say_text, visible_lines

COMMANDS = {
    "objects": ("luthier.cli.objects", "list code objects and kernels in any container"),
    "disasm": ("luthier.cli.disasm", "disassemble kernels"),
    "extract": ("luthier.cli.extract", "write code objects of any container to files"),
    "lift": ("luthier.cli.lift", "print blocks, calls and liveness of kernels"),
    "check": ("luthier.cli.check", "check on every path that kernels wait for results and avoid hazards"),
    "patch": ("luthier.cli.patch", "write an instrumented code object or program"),
    "cost": ("luthier.cli.cost", "print the registers, instructions and bytes that a tool would add"),
    "verify": ("luthier.cli.verify", "compare original and instrumented kernels on the emulated device"),
    "run": ("luthier.cli.run", "run a program on virtual devices or GPUs, with or without tools"),
    "profile": ("luthier.cli.profile", "run a program and print its costs, their source lines and advice"),
    "capture": ("luthier.cli.capture", "write launches of a program to files, with their memory"),
    "project": ("luthier.cli.project", "project times of captured launches on GPUs, and what bounds them"),
    "replay": ("luthier.cli.replay", "run captured launches again, without the program and ROCm"),
    "debug": ("luthier.cli.debug", "debug a captured launch, forwards and backwards"),
    "diff": ("luthier.cli.diff", "compare kernels of two code objects, or captured launches"),
    "minimise": ("luthier.cli.minimise", "reduce a failing captured launch to the smallest that still fails"),
    "export": ("luthier.cli.export", "write a captured launch as a stand-alone HIP program"),
    "sanitize": ("luthier.cli.sanitize", "run a program on virtual devices and check it for errors"),
    "report": ("luthier.cli.report", "show results of runs: tables, a page, a timeline, a comparison"),
    "merge": ("luthier.cli.merge", "merge runs of processes, ranks or repetitions into one"),
    "emulator": ("luthier.cli.emulator", "list what the emulated device can execute, or compile it ahead of time"),
    "cache": ("luthier.cli.cache", "list or clear the cache"),
    "explain": ("luthier.cli.explain", "explain a finding: what it means and how to fix it"),
    "tools": ("luthier.cli.tools", "list installed tools, or describe one"),
    "completion": ("luthier.cli.completion", "print shell completion for commands, options, tools and devices"),
    "manual": ("luthier.cli.manual", "print the manual page"),
}
"""Sub-command -> (module, one line of help). The module has `add_arguments(parser)` and `run(args) -> int`."""

PRINTING = frozenset(
    {"objects", "disasm", "lift", "cost", "report", "emulator", "cache", "tools", "completion", "explain", "manual"}
)
"""Sub-commands that only print: a reader that closes the pipe early causes no error."""

DASHED = ("--check", "--checks")
"""Options whose values may begin with a dash."""

JSON = "--json"
"""The option whose value, if it may be left out, is the next argument only where that names a JSON file."""

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"

COMMAND_GROUP = "luthier.commands"
"""Entry-point group of mappings like `COMMANDS`: sub-commands of other packages, e.g. those that build tools."""


class Command(Protocol):
    """Interface of a module that implements a sub-command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's options."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command and return its exit status."""


_ANY_WIDTH = 80


class Parser(argparse.ArgumentParser):
    """A parser whose error messages quote arguments, since these may be file names, and that accepts values that begin
    with a dash for the options in `DASHED`."""

    _is_shown = False

    def format_help(self, *given: Any, **named: Any) -> str:
        """Return the help for a terminal of this width."""
        self._is_shown = True
        return super().format_help(*given, **named)

    def format_usage(self, *given: Any, **named: Any) -> str:
        """Return the usage for a terminal of this width."""
        self._is_shown = True
        return super().format_usage(*given, **named)

    # Newer releases of Python make the formatter for a file first, and pass it on.
    def _get_formatter(self, *given: Any, **named: Any) -> argparse.HelpFormatter:
        # `add_argument` checks each argument with one. To ask for the terminal's width, it would import `shutil`.
        if self._is_shown or given or named:
            return super()._get_formatter(*given, **named)
        return argparse.HelpFormatter(self.prog, width=_ANY_WIDTH)

    def parse_args(self, words: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """Parse the arguments of a command."""
        parsed, unknown = self.parse_known_args(words)
        if unknown:
            option = unknown[0].partition("=")[0]
            hint = did_you_mean(option, self._option_string_actions) if option.startswith("--") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed

    def parse_known_args(  # type: ignore[override]
        self, words: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the arguments of a command, or of a sub-command of one."""
        return super().parse_known_args(self._joined(words), namespace)

    def _joined(self, words: Sequence[str]) -> list[str]:
        """Return arguments in which ``--check -race`` and ``--json out.json`` are single words, and abbreviated options
        without ``=`` are whole.

        Arguments of a program, from the first word that is no option, stay as they are.
        """
        takes_program = any(action.nargs in (argparse.REMAINDER, argparse.PARSER) for action in self._actions)
        joined: list[str] = []
        rest = deque(words)
        while rest:
            word = self._whole(rest.popleft())
            action = self._option_string_actions.get(word)
            if word == "--" or (takes_program and not word.startswith("-")):
                return [*joined, word, *rest]
            joined.append(word)
            if action is None or not rest:
                continue
            if word == JSON and action.nargs == "?":
                has_value = rest[0].endswith(".json") or rest[0] == action.const
                joined[-1] += f"={rest.popleft() if has_value else action.const}"
            elif action.nargs is None:
                value = rest.popleft()
                if word in DASHED and value[:1] == "-" and value[:2] != "--":
                    joined[-1] += f"={value}"
                else:
                    joined.append(value)
        return joined

    def _whole(self, word: str) -> str:
        """Return an option for its abbreviation; other words, and abbreviations of several options, as they are."""
        options = self._option_string_actions
        if len(word) < 3 or not word.startswith("--") or word in options:
            return word
        fitting = [option for option in options if option.startswith(word)]
        return fitting[0] if len(fitting) == 1 else word

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit with a message."""
        super().exit(status, message and visible_lines(message))


def every_command() -> dict[str, tuple[str, str]]:
    """Return `COMMANDS` and the sub-commands of installed packages, which cannot replace ours.

    A package is imported only if its mapping is not a literal; one that cannot be imported is reported.
    """
    from luthier.extensions.entry_points import points_of  # not needed for `COMMANDS`
    from luthier.extensions.records import load

    commands = dict(COMMANDS)
    for point in points_of(COMMAND_GROUP):
        try:
            literal = point.literal()
            is_table = isinstance(literal, dict) and literal
            added = literal if is_table else load(point, f"commands {point.name}", kind=(Mapping, "mapping"))
        except LuthierError as problem:
            say_text(f"luthier: warning: {problem}", file=sys.stderr)
            continue
        for name, command in added.items():
            commands.setdefault(name, command)
    return commands


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit status: 1 for a `LuthierError`, 2 for wrong usage."""
    _open_closed()
    gc.set_threshold(100_000)  # imports create little garbage, and searching for it takes a seventh of their time
    atexit.register(_leave_garbage)
    _spare_threads()
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    name, chosen, status = "luthier", "", None
    try:
        commands = COMMANDS if arguments and arguments[0] in COMMANDS else every_command()
        if arguments[0] not in commands and not arguments[0].startswith("-"):
            hint = did_you_mean(arguments[0], commands)
            Parser(prog="luthier").error(f"no command {arguments[0]!r}{hint}; `luthier --help` lists all")
        chosen = _chosen(arguments[:1], commands)
        name = f"luthier {chosen}"
        module_name, summary = commands[chosen]
        command: Command = importlib.import_module(module_name)
        command_parser = Parser(prog=name, description=summary)
        command.add_arguments(command_parser)
        parsed = command_parser.parse_args(arguments[1:])
        forget_losses()
        status = command.run(parsed)
        sys.stdout.flush()  # flushed here, where a failure can be reported
        if lost := losses():
            more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
            say_text(f"{name}: error: lost: {lost[0]}{more}", file=sys.stderr)
        return status or int(bool(lost))
    except LuthierError as problem:
        say_text(f"{name}: error: {problem}", file=sys.stderr)
        return 1
    except OSError as problem:  # mostly from standard output: a full disk
        _drop_unwritten(sys.stdout)
        if isinstance(problem, BrokenPipeError) and (status is not None or chosen in PRINTING):
            return status or 0  # `luthier disasm | head` is not an error
        where = f"{problem.filename}: " if problem.filename else ""
        say_text(f"{name}: error: {where}{problem.strerror or problem}", file=sys.stderr)
        return 1
    except (MemoryError, ImportError, RuntimeError) as problem:
        nested = "the input is nested too deeply" if isinstance(problem, RecursionError) else None
        text = nested or shortage(problem)
        if text is None:
            raise
        say_text(f"{name}: error: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        _drop_unwritten(sys.stderr)


def _open_closed() -> None:
    """Open /dev/null as standard input, output and error where they are closed.

    Otherwise other files get their numbers, and programs that Luthier runs write to those.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # opens the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _leave_garbage() -> None:
    """Skip the garbage collection at exit, a tenth of the time of a short command.

    Not with packages made with nanobind, such as DuckDB: they warn about objects that were not collected.
    """
    native = importlib.machinery.ExtensionFileLoader
    loaded = [vars(one) for one in list(sys.modules.values()) if isinstance(getattr(one, "__loader__", None), native)]
    if not any(type(value).__module__ == "nanobind" for names in loaded for value in names.values()):
        gc.freeze()


def _spare_threads() -> None:
    """Stop NumPy from starting threads for matrices, which Luthier does not need: they begin with a busy loop, a tenth
    of the time of a short command."""
    if _BLAS_THREADS not in os.environ:
        os.putenv(_BLAS_THREADS, "1")  # not in `os.environ`, which is passed to programs


def _chosen(arguments: Sequence[str], commands: Mapping[str, tuple[str, str]]) -> str:
    """Return the sub-command that the first argument names."""
    parser = Parser(
        prog="luthier",
        description="Instrument AMD GPU programs.",
        epilog="commands:\n" + "\n".join(f"  {name:10} {text}" for name, (_, text) in commands.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"luthier {__version__}")
    parser.add_argument("command", choices=list(commands), metavar="COMMAND")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen: str = parser.parse_args(arguments).command
    return chosen


def _drop_unwritten(stream: IO[str]) -> None:
    """Discard output that cannot be written: Python would try again at exit, and fail."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
