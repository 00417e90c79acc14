"""`luthier check-hooks`: whether the hooks in built files can be spliced, for builds that only embed them."""

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
    """Do what the command line asks for; the exit status."""
    from luthier.module import ToolModule  # slow to import, with all that follow

    from luthier_build.check import problems_of_module, raise_problems

    modules = [module for file in args.files for module in ToolModule.load_all(file)]
    found: dict[str, list[str]] = {}
    for module in modules:
        for target in module.targets:
            found.setdefault(str(target), []).extend(problems_of_module(module, target))
    raise_problems(found)
    for module in modules:
        hooks, targets = len(module.hooks), ", ".join(map(str, module.targets))
        say(f"{module.name}: {hooks} hook{'s' * (hooks != 1)} for {targets} can be spliced")
    return 0
