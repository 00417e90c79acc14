"""Make the manifest of a device module from its code objects and its sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from luthier.errors import BuildError
from luthier.module import DeviceContents, DeviceVariable, Hook, ModuleManifest, Parameter, ToolModule
from luthier.module.embedded import plain_name

from luthier_build.sources import SourceDeclaration

PASSABLE = {
    "bool": (1,),
    "int": (1, 2, 4, 8),
    "uint": (1, 2, 4, 8),
    "float": (2, 4, 8),
    "pointer": (4, 8),
    "vector": None,
}
"""Kind of parameter -> sizes in bytes that can be passed in registers (None: any)."""

_TAKEN = frozenset({"name", *(name for name in vars(ToolModule) if not name.startswith("_"))})
"""Attributes of `ToolModule`; hooks are attributes too and cannot have these names."""


def make_manifest(
    package: str,
    module: str,
    bundle: str,
    compiler: str,
    contents: Sequence[DeviceContents],
    declarations: Mapping[str, SourceDeclaration],
) -> ModuleManifest:
    """Return the manifest for the code objects of all targets and the declarations in the sources.

    Args:
        compiler: version line of the compiler.
        contents: one for each target.
        declarations: by mangled name; if empty, parameters have no names and only LLVM types.

    Raises:
        BuildError: a hook with a parameter that cannot be passed, or that differs between targets.
    """
    hooks: dict[str, Hook] = {}
    variables: dict[str, DeviceVariable] = {}
    for content in contents:
        for hook in content.hooks:
            if _types(hooks.setdefault(hook.symbol, hook)) != _types(hook):
                raise BuildError(f"parameters of hook {hook.symbol} differ between targets", target=str(content.target))
        for variable in content.variables:
            if variables.setdefault(variable.symbol, variable) != variable:
                problem = f"declarations of variable {variable.symbol} differ between targets"
                raise BuildError(problem, target=str(content.target))
    for hook in hooks.values():
        if hook.symbol in _TAKEN:
            raise BuildError(
                f"{hook.location or module}: hook {hook.symbol!r} has the name of an attribute of ToolModule: rename it"
            )
    everywhere = tuple(str(content.target) for content in contents)

    def targets_of(symbol: str) -> tuple[str, ...]:
        having = tuple(str(c.target) for c in contents if any(hook.symbol == symbol for hook in c.hooks))
        return () if having == everywhere else having

    return ModuleManifest(
        package,
        module,
        bundle,
        everywhere,
        tuple(_hook(hook, declarations.get(hook.symbol), targets_of(hook.symbol)) for hook in hooks.values()),
        tuple(_variable(variable, declarations.get(variable.symbol)) for variable in variables.values()),
        tuple(sorted({intrinsic for content in contents for intrinsic in content.intrinsics})),
        contents[0].cuid,
        contents[0].llvm,
        compiler,
        {str(content.target): content.wave_sizes for content in contents},
    )


def _types(hook: Hook) -> list[str]:
    return [parameter.llvm for parameter in hook.parameters]


def _hook(hook: Hook, declaration: SourceDeclaration | None, targets: tuple[str, ...]) -> Hook:
    if declaration is None:
        parameters = tuple(
            replace(parameter, name=parameter.name or f"arg{number}")
            for number, parameter in enumerate(hook.parameters)
        )
        return replace(hook, name=plain_name(hook.symbol), parameters=parameters, targets=targets)
    for parameter in declaration.parameters:
        sizes = PASSABLE.get(parameter.kind, ())
        if sizes is not None and parameter.size not in sizes:
            raise BuildError(
                f"{parameter.location}: parameter {parameter.name!r} of hook {declaration.name} has type "
                f"{parameter.type!r}, which cannot be passed in registers: use numbers, pointers or vectors"
            )
    if len(declaration.parameters) != len(hook.parameters):
        raise BuildError(
            f"{declaration.location}: hook {declaration.name} is declared with {len(declaration.parameters)} "
            f"parameters but compiled with {len(hook.parameters)}: use numbers, pointers or vectors"
        )
    return Hook(
        declaration.name,
        hook.symbol,
        tuple(
            Parameter(declared.name, declared.type, declared.kind, declared.size, parameter.llvm)
            for declared, parameter in zip(declaration.parameters, hook.parameters, strict=True)
        ),
        declaration.documentation,
        declaration.location,
        targets,
    )


def _variable(variable: DeviceVariable, declaration: SourceDeclaration | None) -> DeviceVariable:
    if declaration is None:
        return variable
    return replace(
        variable,
        name=declaration.name,
        type=declaration.type,
        documentation=declaration.documentation,
        location=declaration.location,
    )
