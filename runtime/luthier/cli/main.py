"""Entry point of the `luthier` command: find the sub-command, parse, run, and turn errors into exit codes."""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import importlib.machinery
import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, NoReturn, Protocol

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
    "lift": ("luthier.cli.lift", "blocks, calls and liveness of a kernel"),
    "check": ("luthier.cli.check", "whether kernels wait for what they use, on every path"),
    "patch": ("luthier.cli.patch", "write an instrumented code object"),
    "cost": ("luthier.cli.cost", "registers, instructions and bytes a tool would add"),
    "verify": ("luthier.cli.verify", "run original and patched side by side on the emulated device"),
    "run": ("luthier.cli.run", "run a program on virtual devices"),
    "capture": ("luthier.cli.capture", "write launches of a program to files, each with its memory"),
    "replay": ("luthier.cli.replay", "run captured launches again, without the program and without ROCm"),
    "debug": ("luthier.cli.debug", "a captured launch under a debugger that goes forwards and backwards"),
    "diff": ("luthier.cli.diff", "what differs between kernels of two code objects, or captured launches"),
    "minimise": ("luthier.cli.minimise", "the smallest part of a captured launch in which a failure remains"),
    "export": ("luthier.cli.export", "a captured launch as a stand-alone HIP program"),
    "sanitize": ("luthier.cli.sanitize", "run a program on virtual devices and tell what it does wrong with memory"),
    "report": ("luthier.cli.report", "what runs left: tables, a page, a time line, a comparison"),
    "merge": ("luthier.cli.merge", "many runs as one: processes, ranks, repetitions"),
    "emulator": ("luthier.cli.emulator", "what the emulated device can execute"),
    "cache": ("luthier.cli.cache", "what is kept for the next time, how large it is, and removing it"),
    "tools": ("luthier.cli.tools", "list installed tools"),
    "completion": ("luthier.cli.completion", "what a shell needs to complete commands and options"),
}
"""Sub-command -> (module, one line of help). The module has `add_arguments(parser)` and `run(args) -> int`."""

PRINTING = frozenset({"objects", "disasm", "lift", "cost", "report", "emulator", "cache", "tools", "completion"})
"""Sub-commands that do nothing but print: whoever reads no further has what they wanted."""

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"

COMMAND_GROUP = "luthier.commands"
"""Entry-point group of mappings like `COMMANDS`: sub-commands of other packages, such as those that build tools."""


class Command(Protocol):
    """A module that is a sub-command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do what the command line asks for; the exit status."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints quote arguments, which may be names of files."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Leave, with a message."""
        super().exit(status, message and visible_lines(message))


def every_command() -> dict[str, tuple[str, str]]:
    """Return `COMMANDS` and those of installed packages, ours first; what cannot be imported is reported.

    The modules that they name are not imported; the package that names them is, unless its mapping is a literal.
    """
    from luthier.extensions.entry_points import points_of  # not needed for our own
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
    """Run one sub-command; 0 only when its work was done, 1 on a `LuthierError`, 2 on wrong usage."""
    _open_closed()
    gc.set_threshold(100_000)  # imports make many objects and no garbage: a seventh of their time is searching for it
    atexit.register(_leave_garbage)
    _spare_threads()
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    name, chosen, status = "luthier", "", None
    try:
        commands = COMMANDS if arguments and arguments[0] in COMMANDS else every_command()
        if arguments[0] not in commands and not arguments[0].startswith("-"):
            hint = did_you_mean(arguments[0], commands)
            Parser(prog="luthier").error(f"there is no command {arguments[0]!r}{hint}; `luthier --help` lists them")
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
    except OSError as problem:  # of standard output, above all: a full disk
        _drop_unwritten(sys.stdout)
        if isinstance(problem, BrokenPipeError) and (status is not None or chosen in PRINTING):
            return status or 0  # `luthier disasm | head` is no error of ours
        where = f"{problem.filename}: " if problem.filename else ""
        say_text(f"{name}: error: {where}{problem.strerror or problem}", file=sys.stderr)
        return 1
    except (MemoryError, ImportError, RuntimeError) as problem:
        nested = "something in the input is nested too deeply" if isinstance(problem, RecursionError) else None
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
    """Open standard input, output and error on nothing where they are closed.

    Other files would get their numbers, and programs that are run would write there.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _leave_garbage() -> None:
    """Spare the interpreter the search for garbage at its end, a tenth of the time of a short command.

    Packages made with nanobind, as DuckDB, complain about what nobody has collected.
    """
    native = importlib.machinery.ExtensionFileLoader
    loaded = [vars(one) for one in list(sys.modules.values()) if isinstance(getattr(one, "__loader__", None), native)]
    if not any(type(value).__module__ == "nanobind" for names in loaded for value in names.values()):
        gc.freeze()


def _spare_threads() -> None:
    """Let NumPy start no threads for matrices, which nothing here needs: they begin by waiting in a loop, a tenth of
    the time of a short command."""
    if _BLAS_THREADS not in os.environ:
        os.putenv(_BLAS_THREADS, "1")  # not in `os.environ`, which programs that are run get


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
    """Discard what could not be written, since Python would try again at its end, and report it or fail."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
