"""`luthier build`: build a project's device modules without pip, or one from sources named on the command line."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, put_json
from luthier.errors import BuildError
from luthier.support.files import write_atomically
from luthier.terminal import say_text

from luthier_build.editable import write_record
from luthier_build.layout import only_package, package_folder
from luthier_build.package import BuiltModule, compile_tool, find_toolchain
from luthier_build.plugin import own_files, plugin_for
from luthier_build.settings import Settings, load_settings, read_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE", help="HIP sources of one module (default: modules of [tool.luthier])"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder for bundle, manifest and stub")
    parser.add_argument("--project", type=Path, default=Path(), metavar="DIR", help="base folder of sources")
    parser.add_argument("--name", help="name of the module (default: stem of the last source)")
    parser.add_argument("--package", help="Python package of the module")
    parser.add_argument("--target", action="append", dest="targets", help="e.g. gfx942:xnack-; repeatable")
    parser.add_argument("-I", action="append", dest="include_dirs", metavar="DIR", help="folder of headers")
    parser.add_argument("-D", action="append", dest="defines", metavar="NAME[=VALUE]", help="preprocessor definition")
    parser.add_argument("--flag", action="append", dest="flags", help="additional compiler flag, e.g. --flag=-Wall")
    parser.add_argument("--build-dir", help="folder for intermediate files")
    parser.add_argument("--clang", help="compiler to use")
    parser.add_argument(
        "--no-check-hooks",
        action="store_false",
        dest="check_hooks",
        default=None,
        help="do not check that every hook can be spliced",
    )
    parser.add_argument("--jobs", type=int, help="number of parallel compilations")
    parser.add_argument("--depfile", type=Path, help="write the files that were read as a rule for make and ninja")
    parser.add_argument("--depfile-target", help="target of that rule (default: the bundles)")
    parser.add_argument(
        "--verbose", action="store_true", default=None, help="show commands and the sources of settings"
    )
    add_json_argument(parser, "the manifests")


def run(args: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    table: dict[str, Any] = (read_table(args.project) or {}) if not args.sources else {}
    if args.sources:
        name = args.name or Path(args.sources[-1]).stem
        table = {"modules": {name: {"sources": args.sources}}}
    elif not table:
        raise BuildError(f"no sources given, and no [tool.luthier] in {args.project / 'pyproject.toml'}")
    names = (
        "package",
        "targets",
        "include_dirs",
        "defines",
        "flags",
        "build_dir",
        "clang",
        "check_hooks",
        "jobs",
        "verbose",
    )
    settings = load_settings(
        table,
        table_origin="the command line" if args.sources else "pyproject.toml",
        flags={name: getattr(args, name) for name in names},
    )
    if not args.sources and not settings.package:  # the package that pip's build would use
        settings = dataclasses.replace(settings, package=only_package(args.project))
    destination = args.output or (package_folder(args.project, settings.package) if settings.package else args.project)
    report = (lambda _: None) if args.json == STANDARD_OUTPUT else (lambda line: say_text(line, flush=True))
    built = compile_tool(settings, project=args.project, destination=destination, report=report, whole=not args.sources)
    if not args.sources and not args.output:  # into the source tree, as an editable install
        write_record(destination, args.project, settings, built)
    if args.depfile:
        write_atomically(args.depfile, _depfile(built, settings, args.project, args.depfile_target).encode())
    if args.json:
        put_json(args.json, [json.loads(module.manifest.to_json()) for module in built])
    return 0


def _depfile(built: list[BuiltModule], settings: Settings, project: Path, target: str | None) -> str:
    """Return one Makefile rule for `target` or the bundles with all files read, including Luthier and the plugin."""
    outputs = [target] if target else [str(module.artefacts[0].resolve()) for module in built]
    copies = (project / settings.build_dir).resolve()
    read = {path for module in built for path in module.device.dependencies}
    # Copies of Luthier's headers are made by this command.
    inputs = {str(path) for path in (*read, *own_files()) if not path.is_relative_to(copies)}
    inputs.add(str(plugin_for(find_toolchain(settings))))
    return f"{' '.join(map(_escaped, outputs))}: {' '.join(map(_escaped, sorted(inputs)))}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(" ", "\\ ").replace("#", "\\#").replace("$", "$$")
