"""The manifest: a JSON file beside each device module's bundle that says what is in it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luthier import __version__
from luthier.errors import BuildError
from luthier.module import ToolModule

from luthier_build.sources import SourceDeclaration

if TYPE_CHECKING:
    from luthier_build.bitcode import DeviceContents, DeviceVariable, HookFunction

FORMAT = "luthier-device-module"
VERSION = 1
"""Raised when a reader of the version before would misunderstand the file."""

PASSABLE = {
    "bool": (1,),
    "int": (1, 2, 4, 8),
    "uint": (1, 2, 4, 8),
    "float": (2, 4, 8),
    "pointer": (4, 8),
    "vector": None,
}
"""Kind of parameter -> sizes in bytes that fit registers (None: any)."""

_TAKEN = frozenset({"name", *(name for name in vars(ToolModule) if not name.startswith("_"))})
"""Attributes of a `ToolModule`, which hooks are attributes of, too."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a hook."""

    name: str
    type: str
    """C++ type as written in the source, or the LLVM type when the source could not be read."""
    kind: str
    """``bool``, ``int`` (signed), ``uint``, ``float``, ``pointer`` or ``vector``."""
    size: int
    """Bytes; 0 when unknown."""
    llvm: str
    """LLVM type in the bitcode, e.g. ``i1``."""


@dataclass(frozen=True)
class Hook:
    """A hook: where it is in the bitcode and how it is called."""

    name: str
    symbol: str
    parameters: tuple[Parameter, ...]
    documentation: str = ""
    location: str = ""
    targets: tuple[str, ...] = ()
    """Targets that have it, when not all do."""


@dataclass(frozen=True)
class Variable:
    """A device variable that Python can read and write."""

    name: str
    symbol: str
    type: str
    size: int
    """Bytes of storage."""
    managed: bool
    """The symbol holds a pointer to the storage; HIP allocates and publishes it."""
    constant: bool
    documentation: str = ""
    location: str = ""


@dataclass(frozen=True)
class Manifest:
    """Everything a device module offers."""

    package: str
    module: str
    bundle: str
    """File name of the offload bundle, in the same folder."""
    targets: tuple[str, ...]
    hooks: tuple[Hook, ...]
    variables: tuple[Variable, ...]
    intrinsics: tuple[str, ...]
    """Names of the intrinsics that the hooks call and the runtime must know, e.g. ``luthier::readReg.i32.i32``."""
    cuid: str
    llvm: str
    """Version of the LLVM that wrote the bitcode, e.g. ``22.1.8``."""
    compiler: str
    """Version line of the compiler."""
    luthier: str = __version__

    def to_json(self) -> str:
        """The file's text; the same for the same contents."""
        return json.dumps({"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest.

        Raises:
            BuildError: no such file, not a manifest, or one of a newer Luthier.
        """
        try:
            raw = json.loads(path.read_text())
        except OSError as problem:
            raise BuildError(f"cannot read manifest: {problem.strerror}", object=str(path)) from problem
        except ValueError as problem:
            raise BuildError(f"not a manifest: {problem}", object=str(path)) from problem
        return cls.from_json(raw, str(path))

    @classmethod
    def from_json(cls, raw: Any, place: str) -> Manifest:
        """A manifest from decoded JSON; `place` names it in errors."""
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise BuildError("not a manifest of a device module", object=place)
        if raw.get("version") != VERSION:
            raise BuildError(
                f"manifest version {raw.get('version')!r} (written by luthier {raw.get('luthier')}), but luthier "
                f"{__version__} reads version {VERSION}: rebuild the tool, or update luthier",
                object=place,
            )
        try:
            return cls(
                raw["package"],
                raw["module"],
                raw["bundle"],
                tuple(raw["targets"]),
                tuple(
                    Hook(
                        **{
                            **hook,
                            "parameters": tuple(Parameter(**parameter) for parameter in hook["parameters"]),
                            "targets": tuple(hook["targets"]),
                        }
                    )
                    for hook in raw["hooks"]
                ),
                tuple(Variable(**variable) for variable in raw["variables"]),
                tuple(raw["intrinsics"]),
                raw["cuid"],
                raw["llvm"],
                raw["compiler"],
                raw["luthier"],
            )
        except (KeyError, TypeError) as problem:
            raise BuildError(f"damaged manifest: {problem}", object=place) from problem


def make_manifest(
    package: str,
    module: str,
    bundle: str,
    compiler: str,
    contents: Sequence[DeviceContents],
    declarations: Mapping[str, SourceDeclaration],
) -> Manifest:
    """Put together what the code objects of all targets and the sources say.

    Args:
        compiler: its version line.
        contents: one a target.
        declarations: by mangled name; may be empty, then parameters have no names and only LLVM types.

    Raises:
        BuildError: a hook with a parameter that cannot be passed, or that differs between targets.
    """
    hooks: dict[str, HookFunction] = {}
    variables: dict[str, DeviceVariable] = {}
    for content in contents:
        for hook in content.hooks:
            if hooks.setdefault(hook.symbol, hook).parameters != hook.parameters:
                raise BuildError(f"hook {hook.symbol} has other parameters than elsewhere", target=content.target)
        for variable in content.variables:
            if variables.setdefault(variable.symbol, variable) != variable:
                raise BuildError(f"variable {variable.symbol} is declared otherwise elsewhere", target=content.target)
    for hook in hooks.values():
        if hook.symbol in _TAKEN:
            raise BuildError(
                f"{hook.location or module}: a hook cannot be called {hook.symbol!r}, which is an attribute of every "
                "ToolModule: rename it"
            )
    everywhere = tuple(content.target for content in contents)

    def targets_of(symbol: str) -> tuple[str, ...]:
        having = tuple(c.target for c in contents if any(hook.symbol == symbol for hook in c.hooks))
        return () if having == everywhere else having

    return Manifest(
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
    )


def _hook(hook: HookFunction, declaration: SourceDeclaration | None, targets: tuple[str, ...]) -> Hook:
    if declaration is None:
        parameters = tuple(
            Parameter(f"arg{number}", llvm, kind_of_llvm(llvm), size_of_llvm(llvm), llvm)
            for number, llvm in enumerate(hook.parameters)
        )
        return Hook(plain_name(hook.symbol), hook.symbol, parameters, location=hook.location, targets=targets)
    for parameter in declaration.parameters:
        sizes = PASSABLE.get(parameter.kind, ())
        if sizes is not None and parameter.size not in sizes:
            raise BuildError(
                f"{parameter.location}: parameter {parameter.name!r} of hook {declaration.name} has type "
                f"{parameter.type!r}, which cannot be passed in registers: take numbers, pointers or vectors"
            )
    if len(declaration.parameters) != len(hook.parameters):
        raise BuildError(
            f"{declaration.location}: hook {declaration.name} is declared with {len(declaration.parameters)} "
            f"parameters and compiled with {len(hook.parameters)}: take numbers, pointers or vectors"
        )
    return Hook(
        declaration.name.rpartition("::")[2],
        hook.symbol,
        tuple(
            Parameter(parameter.name, parameter.type, parameter.kind, parameter.size, llvm)
            for parameter, llvm in zip(declaration.parameters, hook.parameters, strict=True)
        ),
        declaration.documentation,
        declaration.location,
        targets,
    )


def _variable(variable: DeviceVariable, declaration: SourceDeclaration | None) -> Variable:
    known = declaration or SourceDeclaration(plain_name(variable.symbol), "", (), "", "")
    return Variable(
        known.name,
        variable.symbol,
        known.type,
        variable.size,
        variable.managed,
        variable.constant,
        known.documentation,
        known.location,
    )


def plain_name(symbol: str) -> str:
    """``a::b`` for the Itanium names of variables (``_ZN1a1bE``, ``_ZL1b``); any other symbol as it is."""
    rest = symbol.removeprefix("_Z").removeprefix("L").removeprefix("N")
    if rest == symbol:
        return symbol
    parts = []
    while rest[:1].isdigit():
        digits = len(rest) - len(rest.lstrip("0123456789"))
        length = int(rest[:digits])
        parts.append(rest[digits : digits + length])
        rest = rest[digits + length :].removeprefix("L")
    return "::".join(parts) if parts and rest in ("", "E") else symbol


def kind_of_llvm(llvm: str) -> str:
    """The kind of parameter an LLVM type most likely stands for (signedness is not in it)."""
    if llvm == "i1":
        return "bool"
    if llvm.startswith("ptr"):
        return "pointer"
    if llvm.startswith("<"):
        return "vector"
    return "int" if llvm.startswith("i") else "float"


def size_of_llvm(llvm: str) -> int:
    """Bytes of a scalar LLVM type; 0 for others."""
    if llvm.startswith("i") and llvm[1:].isdigit():
        return (int(llvm[1:]) + 7) // 8
    return {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}.get(llvm, 0)
