"""What a device module's code object says of itself: the plugin's manifest in its bitcode, as the build wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luthier.errors import BuildError, ObjectError, ToolError
from luthier.module import BITCODE_SECTION, read_manifest
from luthier.objects import CodeObject, load_object


@dataclass(frozen=True)
class HookFunction:
    """A hook as compiled: its symbol and the LLVM type of each parameter, ``i1`` … ``ptr``, ``<4 x float>``."""

    symbol: str
    parameters: tuple[str, ...]
    location: str = ""


@dataclass(frozen=True)
class DeviceVariable:
    """A variable of the tool. `size` is of what the author declared, in bytes, also when it is managed."""

    symbol: str
    size: int
    managed: bool
    constant: bool


@dataclass(frozen=True)
class DeviceContents:
    """Everything found in one target's code object."""

    target: str
    hooks: tuple[HookFunction, ...]
    intrinsics: tuple[str, ...]
    """Names that the runtime must know, e.g. ``luthier::readReg.i32.i32``."""
    variables: tuple[DeviceVariable, ...]
    cuid: str
    """The compilation-unit id clang put in the module; empty before clang 18."""
    llvm: str
    """Version of the LLVM that wrote the bitcode, e.g. ``22.1.8``."""


def read_contents(path: Path, target: str) -> DeviceContents:
    """Read one code object made by `compile_device`.

    Raises:
        BuildError: not a code object, or no bitcode of Luthier's plugin in it.
    """
    try:
        code_object = load_object(path)
    except ObjectError as problem:
        raise BuildError(f"the compiler made no code object: {problem}", object=path.name, target=target) from problem
    return contents_of(code_object, target)


def contents_of(code_object: CodeObject, target: str) -> DeviceContents:
    """The same of a code object in memory."""
    try:
        raw = read_manifest(code_object.section_data(BITCODE_SECTION) or b"", code_object.name)
    except ToolError as problem:
        raise BuildError(
            "no bitcode of Luthier's compiler plugin: is MARK_LUTHIER_DEVICE_MODULE in the source?",
            object=code_object.name,
            target=target,
        ) from problem
    try:
        return DeviceContents(
            target,
            tuple(_hook(hook) for hook in raw["hooks"]),
            tuple(intrinsic["name"] for intrinsic in raw["intrinsics"]),
            tuple(
                DeviceVariable(
                    variable["name"], variable["size"], bool(variable.get("managed")), bool(variable.get("constant"))
                )
                for variable in raw["variables"]
            ),
            raw["cuid"],
            raw["llvm"],
        )
    except (KeyError, TypeError) as problem:
        raise BuildError(
            f"the manifest of Luthier's plugin lacks {problem}", object=code_object.name, target=target
        ) from problem


def _hook(raw: Mapping[str, Any]) -> HookFunction:
    location = f"{raw['file']}:{raw['line']}" if "file" in raw else ""
    return HookFunction(raw["name"], tuple(parameter["type"] for parameter in raw["parameters"]), location)
