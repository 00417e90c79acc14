"""Device modules from HIP source in Python: for notebooks, tests, and tools too small for a package."""

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
"""Entry-point group: the function ``inline(source, name, settings, caller, target)`` returns bundle and manifest for a
target, all possible targets, and whether any other processor is possible, too."""


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
    """Compile HIP source to a device module, or take it from the cache; equal sources return the same object.

    HIP's and Luthier's headers are included before the source, and ``MARK_LUTHIER_DEVICE_MODULE`` is added if it is
    missing, so hooks and variables are enough. Missing settings come from the environment (``LUTHIER_TARGETS``, …), as
    in every build. Safe in several processes and threads.

    Targets are compiled on demand, except the first, so that errors are raised here.

    Args:
        source: source of one device module.
        name: name in errors.
        targets: target IDs, e.g. ``["gfx942:xnack-"]``; by default ``LUTHIER_TARGETS``, or else every processor.
        include_dirs: folders of headers.
        defines: preprocessor definitions, ``NAME`` or ``NAME=VALUE``.
        flags: further compiler flags.
        check_hooks: whether to require that every hook can be spliced.

    Raises:
        BuildError: there is no compiler for HIP, or an error in the source, with its line.
        TargetError: a target does not exist.
    """
    if not isinstance(source, str):
        raise BuildError(f"the source of a device module must be a string, not {type(source).__name__}")
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
    """Return the module, compiled for one target now and for others on demand."""
    bundle, manifest, targets, every = compile(wanted())
    loaded = _loaded(bundle, manifest)
    loaded.compile_for_more(OnDemand(lambda target: compile(target)[:2], targets, every))
    return loaded


@functools.lru_cache(maxsize=64)
def _loaded(bundle: bytes, manifest: ModuleManifest) -> ToolModule:
    return load_built(bundle, manifest)
