"""Entry point of the `luthier` command: find the sub-command, parse, run, and turn errors into exit codes."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Protocol

from luthier import __version__
from luthier.errors import LuthierError

COMMANDS = {
    "objects": ("luthier.cli.objects", "list code objects and kernels in any container"),
    "disasm": ("luthier.cli.disasm", "disassemble kernels"),
    "lift": ("luthier.cli.lift", "blocks, calls and liveness of a kernel"),
    "patch": ("luthier.cli.patch", "write an instrumented code object"),
    "cost": ("luthier.cli.cost", "registers, instructions and bytes a tool would add"),
    "verify": ("luthier.cli.verify", "run original and patched side by side on the emulated device"),
    "run": ("luthier.cli.run", "run a program on virtual devices"),
    "emulator": ("luthier.cli.emulator", "what the emulated device can execute, and its cache"),
    "tools": ("luthier.cli.tools", "list installed tools"),
    "check-hooks": ("luthier_build.cli.check_hooks", "whether the hooks in built files can be spliced"),
    "build": ("luthier_build.cli.build", "compile device modules without pip"),
    "new": ("luthier_build.cli.new", "start a tool package"),
    "doctor": ("luthier_build.cli.doctor", "what this machine has and lacks"),
}
"""Sub-command -> (module, one line of help). The module has `add_arguments(parser)` and `run(args) -> int`."""


class Command(Protocol):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; 0 only when its work was done, 1 on a `LuthierError`, 2 on wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="luthier",
        description="Instrument AMD GPU programs.",
        epilog="commands:\n" + "\n".join(f"  {name:10} {text}" for name, (_, text) in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"luthier {__version__}")
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments[:1]).command
    module_name, summary = COMMANDS[chosen]
    try:
        command: Command = importlib.import_module(module_name)
        command_parser = argparse.ArgumentParser(prog=f"luthier {chosen}", description=summary)
        command.add_arguments(command_parser)
        return command.run(command_parser.parse_args(arguments[1:]))
    except LuthierError as problem:
        print(f"luthier {chosen}: error: {problem}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `luthier disasm | head` is no error of ours
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
