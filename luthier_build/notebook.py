"""``%%luthier`` for notebooks: compile a cell of HIP, run it on an emulated device under tools, and show the results.

``%load_ext luthier_build.notebook`` adds the magic. What a cell does depends on its source:

- A program (it has ``main``) runs under the tools of `luthier profile`, those of ``-t`` included. The cell shows the
  program's output and the results, an `OpenedRun` that is then called ``run``, or as ``--name`` says.
- Kernels without ``main`` are launched by the Python statement of ``--launch``, on NumPy arrays of the notebook, under
  one tool: an installed one, or a subclass of `Tool` in the notebook. Its tables are shown.
- Hooks (``LUTHIER_HOOK_ANNOTATE``) become a `ToolModule` called ``hooks``, or as ``--name`` says.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
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
from luthier_build.wrapper import find_hipcc

_HAS_MAIN = re.compile(r"\bmain\s*\(")
_HAS_HOOKS = re.compile(r"\bLUTHIER_HOOK_ANNOTATE\b")
_RUN, _HOOKS = "run", "hooks"


class _CellParser(argparse.ArgumentParser):
    """A parser that raises errors instead of ending the notebook."""

    def error(self, message: str) -> NoReturn:
        raise LuthierError(f"%%luthier: {message}; {self.format_usage().strip()}")


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%luthier`` to an IPython shell."""
    folder = tempfile.TemporaryDirectory(prefix="luthier-cells-")  # removed when the notebook's process ends
    shell.register_magic_function(partial(_magic, shell, folder), "cell", "luthier")


def _magic(shell: Any, folder: tempfile.TemporaryDirectory[str], line: str, cell: str) -> Any:
    from IPython.core.error import UsageError

    own = Path(tempfile.mkdtemp(dir=folder.name))
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
    words = shlex.split(line)
    end = words.index("--") if "--" in words else len(words)
    parser = _CellParser(prog="%%luthier", add_help=False, allow_abbrev=False)
    parser.add_argument("-t", "--tool", action="append", default=[], metavar="TOOL")
    parser.add_argument("--device", default="emu:gfx90a")
    parser.add_argument("--name", metavar="NAME")
    parser.add_argument("--launch", metavar="STATEMENT")
    parser.add_argument("--flags", default="", metavar="FLAGS", help="further flags of the compiler")
    options, further = parser.parse_known_args(words[:end])
    if options.name and not options.name.isidentifier():
        raise LuthierError(f"%%luthier: --name takes a name of Python, not {options.name!r}")
    source = f"\n{cell}"
    is_program, is_hooks = bool(_HAS_MAIN.search(cell)), bool(_HAS_HOOKS.search(cell))
    if not is_program and (further or words[end + 1 :]):
        raise LuthierError(
            f"%%luthier: {shlex.join(further + words[end + 1 :])} is for programs, and the cell has no main"
        )
    if is_hooks:
        if is_program or options.tool or options.launch:
            raise LuthierError("%%luthier: a cell of hooks takes --name and --flags, and has no main")
        hooks = load_inline(source, name=options.name or _HOOKS, flags=shlex.split(options.flags) or None)
        shell.push({options.name or _HOOKS: hooks})
        say(f"{options.name or _HOOKS}: {', '.join(hooks.hooks)}")
        return None
    file = folder / "cell.hip"
    file.write_text(source, encoding="utf-8")
    flags = ["-g", *shlex.split(options.flags)]
    if is_program:
        if options.launch:
            raise LuthierError("%%luthier: --launch is for kernels, and the cell has main")
        return _program(shell, folder, options, flags, [*further, *words[end:]])
    return _kernels(shell, file, options, flags)


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
    profile = ["-m", "luthier", "profile", "--no-page", "-o", "RUN", "--device", options.device, *tools, *own]
    done = attempt([sys.executable, *profile, "--", "./cell", *arguments], cwd=folder)
    say_text(done.stdout, end="")
    try:
        results = open_run(folder / "RUN")
    except LuthierError:
        raise LuthierError(done.stderr.strip() or f"the program ended with {done.returncode}") from None
    known = {*results.digest.lines(), "RUN"}  # shown as tables
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
    kernels = {spellings(symbol)[-1]: module.kernel(symbol) for symbol in load_object(compiled).kernels}
    exec(compile(options.launch, "--launch", "exec"), shell.user_ns | kernels)
    for refusal in patched.report.refusal_lines():
        say(refusal, file=sys.stderr)
    tables = reported(tool, module, patched)
    shell.push({options.name: tables} if options.name else {})
    display(*tables)  # type: ignore[no-untyped-call]
