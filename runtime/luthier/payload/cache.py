"""Cache of templates by hook, arguments, target and wave size."""

from __future__ import annotations

import functools
import hashlib

from msgspec.structs import replace

from luthier.errors import HookError, LuthierError, ToolError, WaveSizeError
from luthier.isa import Isa
from luthier.isa.targets import TargetId
from luthier.module import Hook, qualified
from luthier.payload.arguments import Argument, EveryWorkGroup, PayloadAssembly
from luthier.payload.calls import intrinsics_called
from luthier.payload.codegen import generate
from luthier.payload.intrinsics import BUILT_IN
from luthier.payload.kept import kept
from luthier.payload.lds import LdsLayout
from luthier.payload.reading import make_template
from luthier.payload.registry import find_intrinsics, makers_of
from luthier.payload.template import Template


@functools.lru_cache(maxsize=1024)
def template_for(
    hook: Hook,
    arguments: tuple[Argument, ...],
    target: TargetId,
    wave_size: int,
    groups: EveryWorkGroup | None = None,
) -> Template:
    """Return the template of a hook with its arguments, which refers to variables by their `qualified` names.

    Args:
        groups: the work-groups in which it runs; None: all.

    Raises:
        HookError, ToolError: the hook cannot be compiled for the target.
    """
    module = hook.module
    managed = frozenset(name for name, variable in module.variables.items() if variable.managed)
    try:
        contents = module.contents_for(target).for_waves(wave_size)
        if hook.targets and all(hook.symbol != other.symbol for other in contents.hooks):
            raise HookError(f"hook {hook.name} is only for {', '.join(hook.targets)}")
        called = intrinsics_called(contents.intrinsics)
        intrinsics = BUILT_IN | find_intrinsics(called)
        makers = makers_of(called)

        def make() -> PayloadAssembly:
            lds = LdsLayout.of(contents.lds)
            return generate(
                contents.bitcode, hook.symbol, arguments, target, wave_size, managed, intrinsics, groups, lds
            )

        digest = hashlib.sha256(contents.bitcode).hexdigest()
        key = digest, hook.symbol, arguments, str(target), wave_size, sorted(managed), groups
        payload = make() if makers is None else kept(key, make, makers)
        template = make_template(payload, hook.name, Isa.of(target, wave_size))
    except LuthierError as problem:
        if isinstance(problem, WaveSizeError):
            problem.message = f"hook {hook.name} was {problem.message}"
        if hook.location:
            problem.message = f"{hook.location}: {problem.message}"
        problem.object = problem.object or module.name
        problem.target = problem.target or str(target)
        raise
    for fixup in template.fixups:
        variable = module.variables.get(fixup.symbol)
        if variable is None:
            raise ToolError(
                f"hook {hook.name} uses {fixup.symbol}, which the module does not define", object=module.name
            )
        if reason := variable.storage.problem:
            raise ToolError(f"hook {hook.name} uses {fixup.symbol}, but {reason}", object=module.name)
    fixups = tuple(replace(fixup, symbol=qualified(module, fixup.symbol)) for fixup in template.fixups)
    return replace(template, fixups=fixups)
