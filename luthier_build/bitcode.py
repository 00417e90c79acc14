"""What a device module's code object says of itself: the plugin's JSON text inside the bitcode in ``.llvmbc``.

The text is plain bytes in the bitcode (metadata strings are stored so), hence it can be read whatever LLVM wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luthier.errors import BuildError, ObjectError
from luthier.objects import CodeObject, load_object

SECTION = ".llvmbc"
_TEXT = re.compile(rb'\{"luthier":\d+,')
_MAGIC = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


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
    bitcode = code_object.section_data(SECTION)

    def problem(message: str) -> BuildError:
        return BuildError(message, object=code_object.name, target=target)

    if bitcode is None or not bitcode.startswith(_MAGIC):
        raise problem(
            f"the code object has no bitcode in {SECTION}: is MARK_LUTHIER_DEVICE_MODULE in the source, "
            "and did the compiler load Luthier's plugin?"
        )
    found = [_decode(bitcode[match.start() :]) for match in _TEXT.finditer(bitcode)]
    if len(found) != 1 or not isinstance(found[0], dict):
        raise problem(f"{SECTION} was not written by Luthier's plugin, or written {len(found)} times")
    raw = found[0]
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
    except (KeyError, TypeError) as cause:
        raise problem(f"the text of Luthier's plugin in {SECTION} lacks {cause}") from cause


def _decode(data: bytes) -> Any:
    try:
        value, _ = json.JSONDecoder().raw_decode(data.decode("utf-8", "replace"))
    except ValueError:
        return None
    return value


def _hook(raw: Mapping[str, Any]) -> HookFunction:
    location = f"{raw['file']}:{raw['line']}" if "file" in raw else ""
    return HookFunction(raw["name"], tuple(parameter["type"] for parameter in raw["parameters"]), location)
