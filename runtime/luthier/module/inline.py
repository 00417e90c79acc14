"""Device modules from HIP source in Python text: a notebook's cell, a test, a tool too small for a package."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence

from luthier.errors import BuildError
from luthier.extensions.entry_points import points_of
from luthier.extensions.records import load
from luthier.isa.targets import TargetId
from luthier.module.demand import OnDemand, wanted
from luthier.module.manifest import ModuleManifest
from luthier.module.tool_module import ToolModule, load_built

COMPILERS = "luthier.compilers"
"""Entry-point group: the function ``inline(source, name, settings, caller, target)`` that gives bundle and manifest for
a target, all that there may be, and whether any other processor may be asked for, too."""


def load_inline(
    source: str,
    *,
    name: str = "inline",
    targets: str | Sequence[str] | None = None,
    include_dirs: Sequence[str | os.PathLike[str]] | None = None,
    defines: Sequence[str] | None = None,
    flags: Sequence[str] | None = None,
    check_hooks: bool | None = None,
) -> ToolModule:
    """Compile HIP source to a device module, or take it from the cache; the same object for the same source.

    HIP's and Luthier's headers are included before the source, and ``MARK_LUTHIER_DEVICE_MODULE`` is added where it is
    missing: hooks and variables are enough. What is not given comes from the environment (``LUTHIER_TARGETS``, …), as
    in every build. Safe in several processes and threads at once.

    Targets are compiled when they are needed, the first one at once, so that errors are known.

    Args:
        source: of one device module.
        name: what errors call it.
        targets: target ids, e.g. ``["gfx942:xnack-"]``; without, and without ``LUTHIER_TARGETS``, every processor.
        include_dirs: folders of headers.
        defines: preprocessor definitions, ``NAME`` or ``NAME=VALUE``.
        flags: further compiler flags.
        check_hooks: whether every hook must be one that can be spliced.

    Raises:
        BuildError: no compiler for HIP, or an error in the source, with its line.
        TargetError: a target that does not exist.
    """
    if not isinstance(source, str):
        raise BuildError(f"the source of a device module is a string, not {type(source).__name__}")
    for point in points_of(COMPILERS):
        if point.name != "inline":
            continue
        given = {
            "targets": targets,
            "include_dirs": None if include_dirs is None else [os.fspath(folder) for folder in include_dirs],
            "defines": defines,
            "flags": flags,
            "check_hooks": check_hooks,
        }
        compile: _Compile = functools.partial(
            load(point, "the compiler of device modules", BuildError, kind=(Callable, "function")),
            source,
            name,
            given,
            sys._getframe(1).f_code.co_filename,
        )
        return _on_demand(compile)
    raise BuildError(f"no compiler of device modules is installed (entry-point group {COMPILERS}): reinstall luthier")


_Compile = Callable[[TargetId | None], tuple[bytes, ModuleManifest, tuple[TargetId, ...], bool]]


def _on_demand(compile: _Compile) -> ToolModule:
    """Return the module that is compiled for one target now, for the others when they are needed."""
    bundle, manifest, targets, every = compile(wanted())
    loaded = _loaded(bundle, manifest)
    loaded.compile_for_more(OnDemand(lambda target: compile(target)[:2], targets, every))
    return loaded


@functools.lru_cache(maxsize=64)
def _loaded(bundle: bytes, manifest: ModuleManifest) -> ToolModule:
    return load_built(bundle, manifest)
