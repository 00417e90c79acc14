"""Objects of Luthier's own native parts, kept from one build to the next: of an editable install for a wheel, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from luthier.support.processes import run

from luthier_build.workspace import digest_text, forget, is_current, read_depfile, remember

Compile = Callable[..., None]
"""``_compile`` of setuptools' compilers: object, source, its suffix, then lists of arguments."""


def unless_current(compile_source: Compile, compiler: Sequence[str]) -> Compile:
    """Return a function that compiles a source with `compile_source`, unless its object is current.

    It is if the same version of the compiler made it with the same arguments from files with the same contents,
    system headers included.

    Args:
        compiler: the command that `compile_source` runs, without these arguments.
    """
    version = run([compiler[0], "--version"])

    def compile_if_changed(target: str, source: str, suffix: str, arguments: list[str], *others: list[str]) -> None:
        output, key = Path(target), digest_text(version, *compiler, source, repr((arguments, others)))
        if is_current(output, key):
            return
        forget(output)
        start = time.time_ns()
        compile_source(target, source, suffix, [*arguments, "-MD"], *others)
        remember(output, key, map(Path, read_depfile(output.with_suffix(".d"))), start)

    return compile_if_changed
