"""`luthier check-hooks`: check that the hooks in built files can be spliced, for builds that only embed them."""

from __future__ import annotations

import argparse
from pathlib import Path

from luthier.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="executables, libraries, objects, archives or bundles"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    from luthier.module import ToolModule  # this import and the next are slow

    from luthier_build.check import problems_of_module, raise_problems

    modules = [module for file in args.files for module in ToolModule.load_all(file)]
    problems_by_target: dict[str, list[str]] = {}
    for module in modules:
        for target in module.targets:
            problems_by_target.setdefault(str(target), []).extend(problems_of_module(module, target))
    raise_problems(problems_by_target)
    for module in modules:
        hooks, targets = len(module.hooks), ", ".join(map(str, module.targets))
        say(f"{module.name}: {hooks} hook{'s' * (hooks != 1)} for {targets} can be spliced")
    return 0
