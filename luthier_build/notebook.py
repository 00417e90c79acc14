"""``%%luthier`` for notebooks: compile a cell of HIP, run it on an emulated device under tools, and show the results.

``%load_ext luthier_build.notebook`` adds the magic. What a cell does depends on its source:

- A program (it has ``main``) runs in the notebook's folder, under the tools of `luthier profile`, those of ``-t``
  included. The cell shows the program's output and the results, an `OpenedRun` that is then called ``run``, or as
  ``--name`` says.
- Kernels without ``main`` are launched by the Python statement of ``--launch``, on NumPy arrays of the notebook, under
  one tool: an installed one, or a subclass of `Tool` in the notebook. Its tables are shown. Kernels have their names in
  the source, where these are names of Python; all are in the dictionary ``kernels``, by symbol and by name.
- Hooks (``LUTHIER_HOOK_ANNOTATE``) become a `ToolModule` called ``hooks``, or as ``--name`` says.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from luthier import load_inline, load_object, open_device, open_run, patch_object, reported
from luthier.errors import LuthierError
from luthier.objects.names import spellings
from luthier.support.processes import attempt, run
from luthier.terminal import say, say_text, visible_lines
from luthier.tool.tool import Tool, parse_tool

from luthier_build.compile import compile_application
from luthier_build.settings import is_python_name
from luthier_build.wrapper import find_hipcc

_HAS_MAIN = re.compile(r"\bmain\s*\(")
_HAS_HOOKS = re.compile(r"\bLUTHIER_HOOK_ANNOTATE\b")
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"', re.S)
"""Comments and strings."""
_OWN_HEADER = re.compile(r'^\s*#\s*include\s*"', re.M)
_RUN, _HOOKS, _KERNELS = "run", "hooks", "kernels"
_DEVICE = "emu:gfx90a"


class _CellParser(argparse.ArgumentParser):
    """A parser that raises errors instead of ending the notebook."""

    def error(self, message: str) -> NoReturn:
        raise LuthierError(f"%%luthier: {message}; {self.format_usage().strip()}")


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%luthier`` to an IPython shell."""
    folder = tempfile.mkdtemp(prefix="luthier-cells-")  # results need it until the notebook's process ends
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shell.register_magic_function(partial(_magic, shell, folder), "cell", "luthier")


def _magic(shell: Any, folder: str, line: str, cell: str) -> Any:
    from IPython.core.error import UsageError

    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        return run_cell(shell, own, line, cell)
    except LuthierError as problem:  # shown without Luthier's own lines
        raise UsageError(visible_lines(str(problem).replace(f"{own}{os.sep}", ""))) from None


def run_cell(shell: Any, folder: Path, line: str, cell: str) -> Any:
    """Compile and run a cell; return what it shows.

    Args:
        shell: IPython's shell, whose variables statements use.
        folder: empty folder for output.
        line: options.
        cell: HIP source. Lines of errors and results are those of the cell, with the magic as line 1.

    Raises:
        LuthierError: an option is wrong, the source does not compile, or the program launched nothing.
    """
    words = _words(line)
    end = words.index("--") if "--" in words else len(words)
    parser = _CellParser(prog="%%luthier", add_help=False, allow_abbrev=False)
    parser.add_argument("-t", "--tool", action="append", default=[], metavar="TOOL")
    parser.add_argument("--device")
    parser.add_argument("--name", metavar="NAME")
    parser.add_argument("--launch", metavar="STATEMENT")
    parser.add_argument("--flags", default="", metavar="FLAGS", help="further flags of the compiler")
    parser.add_argument("-o", "--output")
    options, further = parser.parse_known_args(words[:end])
    if options.output is not None:
        raise LuthierError("%%luthier: -o is not for cells: their results are a variable, named by --name")
    if options.name and not options.name.isidentifier():
        raise LuthierError(f"%%luthier: --name takes a name of Python, not {options.name!r}")
    source = f"\n{cell}"
    code = _NOT_CODE.sub(" ", cell)
    is_program, is_hooks = bool(_HAS_MAIN.search(code)), bool(_HAS_HOOKS.search(code))
    if not is_program and (further or words[end + 1 :]):
        raise LuthierError(
            f"%%luthier: {shlex.join(further + words[end + 1 :])} is for programs, and the cell has no main"
        )
    if is_hooks:
        if is_program or options.tool or options.launch or options.device:
            raise LuthierError("%%luthier: a cell of hooks takes --name and --flags, and has no main")
        hooks = load_inline(
            source,
            name=options.name or _HOOKS,
            flags=_words(options.flags) or None,
            include_dirs=[Path.cwd()] if _OWN_HEADER.search(cell) else None,
        )
        shell.push({options.name or _HOOKS: hooks})
        say(f"{options.name or _HOOKS}: {', '.join(hooks.hooks)}")
        return None
    file = folder / "cell.hip"
    file.write_text(source, encoding="utf-8")
    flags = ["-g", f"-I{Path.cwd()}", *_words(options.flags)]
    options.device = options.device or _DEVICE
    if is_program:
        if options.launch:
            raise LuthierError("%%luthier: --launch is for kernels, and the cell has main")
        return _program(shell, folder, options, flags, [*further, *words[end:]])
    return _kernels(shell, file, options, flags)


def _words(text: str) -> list[str]:
    """Return the words of a text, as a POSIX shell splits it.

    Raises:
        LuthierError: a quotation does not end.
    """
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise LuthierError(f"%%luthier: {text!r}: {problem}") from None


def _program(
    shell: Any, folder: Path, options: argparse.Namespace, flags: Sequence[str], further: Sequence[str]
) -> Any:
    """Run the program under tools; return the results."""
    kind, _, target = options.device.partition(":")
    architecture = target.partition(",")[0].partition("*")[0] if kind == "emu" else "native"
    hip = os.environ | {"HIP_PLATFORM": "amd"}
    compiler = [find_hipcc(), f"--offload-arch={architecture}", *flags, "cell.hip", "-o", "cell"]
    run(compiler, cwd=folder, env=hip, warnings=lambda text: say_text(text, file=sys.stderr))
    tools = [word for tool in options.tool for word in ("-t", tool)]
    own, arguments = (
        (further[: further.index("--")], further[further.index("--") + 1 :]) if "--" in further else (further, ())
    )
    results_folder = folder / "RUN"
    profile = ["-m", "luthier", "profile", "--no-page", "--device", options.device, *tools, *own, "-o", results_folder]
    paths = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}  # for a short command
    done = attempt([sys.executable, *profile, "--", "cell", *arguments], env=paths)
    say_text(done.stdout, end="")
    try:
        results = open_run(results_folder)
    except LuthierError:
        raise LuthierError(done.stderr.strip() or f"the program ended with {done.returncode}") from None
    known = {*results.digest.lines(), str(results_folder)}  # shown as tables
    if text := "\n".join(line for line in done.stderr.splitlines() if line not in known):
        say_text(text, file=sys.stderr)
    shell.push({options.name or _RUN: results})
    return results


def _kernels(shell: Any, file: Path, options: argparse.Namespace, flags: Sequence[str]) -> None:
    """Launch kernels under one tool, and show its tables."""
    from IPython.display import display

    if not options.launch:
        raise LuthierError("%%luthier: the cell has no main: launch its kernels with --launch 'KERNEL.launch(…)'")
    if len(options.tool) > 1:
        raise LuthierError(f"%%luthier: --launch takes one tool, not {len(options.tool)}")
    name = options.tool[0] if options.tool else "block_profile"
    own = shell.user_ns.get(name)
    tool: Tool = own() if isinstance(own, type) and issubclass(own, Tool) else parse_tool(name)
    target = options.device.partition(":")[2]
    compiled = compile_application(
        file, target, file.with_suffix(".hsaco"), flags=["-include", "hip/hip_runtime.h", *flags]
    )
    patched = patch_object(load_object(compiled), tool.instrument, solve_sums=True)
    module = open_device(options.device).load(patched.data)
    _execute(shell, options.launch, {symbol: module.kernel(symbol) for symbol in load_object(compiled).kernels})
    for refusal in patched.report.refusal_lines():
        say(refusal, file=sys.stderr)
    tables = reported(tool, module, patched)
    shell.push({options.name: tables} if options.name else {})
    display(*tables)  # type: ignore[no-untyped-call]


def _execute(shell: Any, statement: str, by_symbol: Mapping[str, Any]) -> None:
    """Execute a statement with the notebook's variables and kernels; new variables are the notebook's.

    Raises:
        LuthierError: it is not Python, or uses a name of a kernel that the notebook or another kernel has, too.
    """
    try:
        tree = ast.parse(statement, "--launch")
    except (SyntaxError, ValueError) as problem:
        raise LuthierError(f"%%luthier: --launch {statement!r} is not a statement of Python: {problem}") from None
    named = [(name, kernel) for symbol, kernel in by_symbol.items() for name in set(spellings(symbol))]
    times = Counter(name for name, _ in named)
    kernels = {name: kernel for name, kernel in named if times[name] == 1}
    bound = {_KERNELS: kernels, **{name: kernel for name, kernel in kernels.items() if is_python_name(name)}}
    known = ", ".join(f"{_KERNELS}[{name!r}]" for name in kernels)
    for name in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}:
        if times[name] > 1:
            raise LuthierError(f"%%luthier: {times[name]} kernels are called {name}: launch one of {known}")
        if name in bound and name in shell.user_ns:
            raise LuthierError(
                f"%%luthier: {name} is both a variable of the notebook and "
                f"{'the dictionary of kernels' if name == _KERNELS else 'a kernel'}: rename one of them"
            )
    before = {"__builtins__": __builtins__} | shell.user_ns | bound
    names = dict(before)
    exec(compile(tree, "--launch", "exec"), names)
    shell.push({name: value for name, value in names.items() if name not in before or value is not before[name]})
