"""Reuse object files of Luthier's native parts between builds, also those of an editable install for a wheel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from luthier.support.processes import run

from luthier_build.workspace import digest_text, forget, is_current, read_depfile, remember

Compile = Callable[..., None]
"""``_compile`` of setuptools' compilers: object, source, suffix of the source, then lists of arguments."""


def unless_current(compile_source: Compile, compiler: Sequence[str]) -> Compile:
    """Return a function that compiles a source with `compile_source` unless its object is current.

    An object is current if the same compiler version made it with the same arguments from files with the same contents,
    including system headers.

    Args:
        compiler: the command that `compile_source` runs, without these arguments.
    """
    version = run([compiler[0], "--version"])

    def compile_if_changed(target: str, source: str, suffix: str, arguments: list[str], *lists: list[str]) -> None:
        output, key = Path(target), digest_text(version, *compiler, source, repr((arguments, lists)))
        if is_current(output, key):
            return
        forget(output)
        start = time.time_ns()
        compile_source(target, source, suffix, [*arguments, "-MD"], *lists)
        remember(output, key, map(Path, read_depfile(output.with_suffix(".d"))), start)

    return compile_if_changed
