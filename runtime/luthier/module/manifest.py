"""The manifest: a JSON file beside each device module's bundle that describes its contents.

`luthier_build.manifest` creates it from code objects and sources.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from luthier import __version__
from luthier.errors import ToolError
from luthier.module.description import DeviceVariable, Hook, Parameter

FORMAT = "luthier-device-module"
VERSION = 1
"""Incremented when earlier readers would misunderstand the file."""
_LOADED = frozenset(("owner", "storage"))
"""Fields of a description that only a loaded module has."""
Made = TypeVar("Made")


@dataclass(frozen=True)
class ModuleManifest:
    """Everything a device module offers."""

    package: str
    module: str
    bundle: str
    """File name of the offload bundle, in the same folder."""
    targets: tuple[str, ...]
    hooks: tuple[Hook, ...]
    variables: tuple[DeviceVariable, ...]
    intrinsics: tuple[str, ...]
    """Names of the intrinsics that hooks call, e.g. ``luthier::readReg.i32.i32``."""
    cuid: str
    llvm: str
    """Version of the LLVM that wrote the bitcode, e.g. ``22.1.8``."""
    compiler: str
    """Version line of the compiler."""
    wave_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    """Target -> wave sizes of kernels in which its hooks can run; empty if an early version of Luthier built it."""
    luthier: str = __version__

    def to_json(self) -> str:
        """Return the file's text, which is the same for equal contents."""
        text = {"format": FORMAT, "version": VERSION, **_members(self)}
        return json.dumps(text, default=_members, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> ModuleManifest:
        """Read a manifest.

        Raises:
            ToolError: there is no such file, or it is not a manifest, or one of a newer Luthier.
        """
        try:
            text = path.read_text()
        except OSError as problem:
            raise ToolError(f"cannot read manifest: {problem.strerror}", object=str(path)) from problem
        except ValueError as problem:
            raise ToolError(f"not a manifest: {problem}", object=str(path)) from problem
        return cls.from_text(text, str(path))

    @classmethod
    def from_text(cls, text: str, place: str) -> ModuleManifest:
        """Parse a file's text; `place` names it in errors."""
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise ToolError(f"not a manifest: {problem}", object=place) from problem
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise ToolError("not a manifest of a device module", object=place)
        if raw.get("version") != VERSION:
            raise ToolError(
                f"manifest version {raw.get('version')!r} (written by luthier {raw.get('luthier')}), but luthier "
                f"{__version__} reads version {VERSION}: rebuild the tool, or update luthier",
                object=place,
            )
        try:
            given = {name: value for name, value in raw.items() if name in cls.__dataclass_fields__}
            return _made(
                cls,
                given | {"luthier": raw["luthier"]},
                targets=_all(str, raw["targets"]),
                hooks=tuple(_hook(hook) for hook in raw["hooks"]),
                variables=tuple(_made(DeviceVariable, variable) for variable in raw["variables"]),
                intrinsics=_all(str, raw["intrinsics"]),
                wave_sizes={target: _all(int, sizes) for target, sizes in raw.get("wave_sizes", {}).items()},
            )
        except (AttributeError, KeyError, TypeError) as problem:
            raise ToolError(f"damaged manifest: {problem}", object=place) from problem


def _members(value: object) -> dict[str, Any]:
    """Return the fields of a description that are in the file."""
    return {name: member for name, member in vars(value).items() if name not in _LOADED}


def _hook(raw: dict[str, Any]) -> Hook:
    parameters = tuple(_made(Parameter, parameter) for parameter in raw["parameters"])
    return _made(Hook, raw, parameters=parameters, targets=_all(str, raw["targets"]))


def _made(kind: type[Made], raw: dict[str, Any], **converted: Any) -> Made:
    """Make a description from the fields in a file, each of which must have the right type.

    Args:
        converted: fields that are neither texts nor numbers.

    Raises:
        TypeError: a field has another type, or is unknown.
    """
    types = {one.name: one.type for one in fields(cast(Any, kind)) if one.name not in _LOADED}
    for name, value in raw.items():
        if name not in converted and type(value).__name__ != types.get(name):
            raise TypeError(f"{name} of a {kind.__name__} is {str(value)[:40]!r}")
    return kind(**{**raw, **converted})


def _all(kind: type[Made], values: object) -> tuple[Made, ...]:
    """Convert a list to a tuple.

    Raises:
        TypeError: the value is not a list, or an element has another type.
    """
    if not isinstance(values, list) or any(type(value) is not kind for value in values):
        raise TypeError(f"{str(values)[:40]!r} is not a list of {kind.__name__}")
    return tuple(values)
