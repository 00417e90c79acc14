"""`luthier tools`: list the installed tools, what their device modules offer, and their problems.

Tools are entry points of group ``luthier.tools``. Facts come from the package metadata and the manifests of its device
modules; a tool is imported only for its options. A broken tool is listed with its problem.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import itertools
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from luthier import __version__
from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, put_json, say_fitting, terminal_width
from luthier.errors import LuthierError, ToolError
from luthier.extensions.entry_points import EntryPoint
from luthier.extensions.records import package_of
from luthier.isa.targets import TargetId
from luthier.module import ModuleManifest
from luthier.module.packages import follow_sources, targets_on_demand
from luthier.support.table import Table
from luthier.terminal import say, say_text
from luthier.tool import Tool, find_tool, tool_class
from luthier.tool.tool import OWN_PACKAGE, tools_by_name


class InstalledTool(Struct, frozen=True):
    """An installed tool."""

    name: str
    package: str
    """Name of its distribution."""
    version: str
    description: str
    """Summary of its package, or first line of its module if Luthier comes with it; "" if there is none."""
    entry_point: str
    modules: tuple[str, ...]
    targets: tuple[str, ...]
    """Targets that all device modules were compiled for."""
    wave_sizes: dict[str, tuple[int, ...]]
    """Target -> wave sizes of kernels in which hooks of all device modules can run; without targets for which modules
    of earlier versions do not record them."""
    hooks: tuple[str, ...]
    """Hooks as ``module.hook(type parameter, …)``."""
    variables: tuple[str, ...]
    """Variables as ``module.variable``."""
    options: tuple[str, ...]
    """Options as ``name: type = default``."""
    problems: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "name",
        nargs="?",
        help="describe only this tool (NAME or PACKAGE:NAME) and its options",
    )
    add_json_argument(parser, "the tools")


def run(args: argparse.Namespace) -> int:
    """Run the command and return 1 if a tool has a problem, otherwise 0.

    Raises:
        ToolError: there is no such tool.
    """
    if args.name is not None and args.json is None:
        return _print_one(args.name)
    tools = installed_tools()
    if args.name is not None:
        name, point, _ = find_tool(args.name)
        tool_class(name)
        tools = [tool for tool in tools if (tool.name, tool.entry_point) == (point.name, point.value)]
    if args.json:
        put_json(args.json, msgspec.to_builtins(tools))
    if args.json == STANDARD_OUTPUT:
        pass
    elif args.name is not None:
        return _print_one(args.name)
    elif not tools:
        say("No tools are installed. A tool is a Python package with an entry point in group luthier.tools;")
        say("`luthier new NAME` starts one.")
    else:
        _print_table(tools)
    return int(any(tool.problems for tool in tools))


def installed_tools() -> list[InstalledTool]:
    """Return every installed tool, sorted by name; broken tools raise no error."""
    rows = []
    for name, points in tools_by_name().items():
        owners = sorted(map(package_of, points))
        apart = " or ".join(f"{owner}:{name}" for owner in owners)
        clash = [f"name clash: {name} is provided by {' and '.join(owners)}; use {apart}"] if len(points) > 1 else []
        rows += [_describe(point, list(clash)) for point in points]
    return sorted(rows, key=lambda row: (row.name, row.package))


def _about(package: str) -> tuple[str, str]:
    """Return the version and summary of a distribution; "?" and "" if its metadata lacks them."""
    try:
        metadata = importlib.metadata.metadata(package)
        return str(metadata["Version"] or "?"), str(metadata["Summary"] or "")
    except Exception:  # any damage to another package's metadata files
        return "?", ""


def _first_line(module: str) -> str:
    """Return the first line of an imported module's docstring, without the dot; "" if there is none."""
    text = getattr(sys.modules.get(module), "__doc__", None) or ""
    return next(iter(text.splitlines()), "").removesuffix(".")


def _wants_modules(folder: Path) -> bool:
    """Return whether a tool package uses device modules: tools that only count have none."""
    return any(b"ToolModule" in path.read_bytes() for path in folder.rglob("*.py"))


def _describe(point: EntryPoint, problems: list[str]) -> InstalledTool:
    manifests: list[ModuleManifest] = []
    offered: list[Sequence[str]] = []
    try:
        folder = package_folder(point.module)
        follow_sources(folder)
        on_demand = targets_on_demand(folder)
        for path in sorted(folder.glob("*.hipfb")):
            try:
                manifests.append(ModuleManifest.read(path.with_suffix(".json")))
                offered.append([str(one) for one in on_demand.get(path.stem, ())] or manifests[-1].targets)
            except LuthierError as problem:
                problems.append(str(problem))
        if not manifests and not problems and _wants_modules(folder):
            problems.append(f"no device modules in {folder}")
    except LuthierError as problem:
        problems.append(str(problem))
    problems += [complaint for manifest in manifests for complaint in _skew(manifest)]
    every = offered[0] if offered else ()
    version, summary = _about(point.package)
    options = tuple(_options(point, problems))
    if point.package == OWN_PACKAGE:
        summary = _first_line(point.module) or summary
    return InstalledTool(
        point.name,
        point.package or "?",
        version,
        summary,
        point.value,
        tuple(manifest.module for manifest in manifests),
        tuple(target for target in every if all(target in others for others in offered)),
        _wave_sizes(manifests),
        tuple(f"{manifest.module}.{hook}" for manifest in manifests for hook in manifest.hooks),
        tuple(f"{manifest.module}.{variable.name}" for manifest in manifests for variable in manifest.variables),
        options,
        tuple(problems),
    )


def _wave_sizes(manifests: list[ModuleManifest]) -> dict[str, tuple[int, ...]]:
    """Return the wave sizes of each target that all modules have, for the targets that all modules have."""
    first, *rest = [manifest.wave_sizes for manifest in manifests] or [{}]
    return {
        target: tuple(size for size in sizes if all(size in other[target] for other in rest))
        for target, sizes in first.items()
        if all(target in other for other in rest)
    }


def _target(target: str, tool: InstalledTool) -> str:
    """Return a target, with its wave sizes if it has several."""
    built = tool.wave_sizes.get(target)
    try:
        known = TargetId.parse(target).target.wave_sizes
    except LuthierError:  # unknown to this version
        known = ()
    return target if built is None or len(known) < 2 else f"{target}({','.join(map(str, built))})"


def _options(point: EntryPoint, problems: list[str]) -> Iterable[str]:
    """Yield the tool's options; errors at import are added to `problems`."""
    try:
        tool = point.load()
    except (Exception, SystemExit) as problem:  # a third-party module may raise anything
        problems.append(f"{point.value} cannot be imported: {problem!r}")
        return
    if not (isinstance(tool, type) and issubclass(tool, Tool)):
        problems.append(f"{point.value} is not a subclass of luthier.Tool")
        return
    for field in dataclasses.fields(tool.Options):
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        yield f"{field.name}: {kind}" + ("" if field.default is dataclasses.MISSING else f" = {field.default!r}")


def _skew(manifest: ModuleManifest) -> Iterable[str]:
    """Yield the reasons why this version cannot use a module that a later Luthier or LLVM built."""
    if _numbers(manifest.luthier)[:2] > _numbers(__version__)[:2]:
        yield (
            f"version skew: {manifest.module} was built with luthier {manifest.luthier}, this is {__version__}: "
            "update luthier"
        )
    from llvmlite import binding

    ours = binding.llvm_version_info
    if _numbers(manifest.llvm)[:1] > ours[:1]:
        yield (
            f"version skew: {manifest.module} holds bitcode of LLVM {manifest.llvm}, but hooks are compiled with LLVM "
            f"{'.'.join(map(str, ours))}: build the tool with clang {ours[0]} or older"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def package_folder(module: str) -> Path:
    """Return the folder of an import package without running its code.

    Raises:
        ToolError: there is no such package, or it is a single-file module.
    """
    top, *below = module.split(".")
    try:
        spec: importlib.machinery.ModuleSpec | None = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError) as problem:
        raise ToolError(f"cannot find package {top}: {problem}") from problem
    if spec is None:
        raise ToolError(f"package {top} is not installed; was the tool removed without pip?")
    for location in spec.submodule_search_locations or ():
        folder = Path(location, *below)
        if folder.is_dir():
            return folder
    raise ToolError(f"{module} is not a package with device modules in it")


def _print_one(name: str) -> int:
    """Print the description of a tool and its options."""
    tool = tool_class(name)
    name = tool.name
    say_fitting(f"{name}: {inspect.cleandoc(sys.modules[tool.__module__].__doc__ or tool.__doc__ or '')}")
    meanings = option_meanings(tool)
    fields = dataclasses.fields(tool.Options)
    say_text("\noptions:" if fields else "\nno options")
    for field in fields:
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
        say_fitting(f"  {field.name}: {kind}{default}")
        if field.name in meanings:
            say_fitting(textwrap.indent(textwrap.fill(meanings[field.name], 100), "      "))
    say_fitting(f"\nusage: luthier run -t {name}{':OPTION=VALUE,...' if fields else ''} -- ./app")
    return 0


def option_meanings(tool: type[Tool]) -> dict[str, str]:
    """Return the docstrings of the fields of a tool's `Options`; {} if there is no source."""
    try:
        (options,) = ast.parse(textwrap.dedent(inspect.getsource(tool.Options))).body
    except (OSError, SyntaxError, TypeError):
        return {}
    assert isinstance(options, ast.ClassDef)
    meanings = {}
    for field, text in itertools.pairwise(options.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                meanings[name] = " ".join(meaning.split())
    return meanings


def _print_table(tools: list[InstalledTool]) -> None:
    """Print a line for each tool: its purpose, its distribution, and its targets if they fit."""
    rows = [
        (
            tool.name,
            tool.description or "-",
            tool.package,
            " ".join(_target(target, tool) for target in tool.targets) or "any",
        )
        for tool in tools
    ]
    width = terminal_width(sys.stdout)
    text = Table("", ("tool", "what it does", "from", "targets"), rows).text(width and width + 2)
    say_text("\n".join(line.removeprefix("  ") for line in text.splitlines()))
    for tool in tools:
        for problem in tool.problems:
            say_fitting(f"! {tool.name}: {problem}")
    say_fitting(
        "`luthier tools NAME` describes one tool and its options; --json also lists hooks and variables",
        file=sys.stderr,
    )
