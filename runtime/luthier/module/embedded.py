"""Reader of the bitcode that the compiler plugin puts into a code object, and of the manifest in it.

compiler_plugin/README.md describes both.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from luthier.errors import ToolError
from luthier.isa.targets import TargetId
from luthier.module.description import DeviceContents, DeviceVariable, Hook, Parameter, VariableStorage
from luthier.objects import CodeObject

BITCODE_SECTION = ".llvmbc"
BITCODE_MAGIC = b"BC\xc0\xde"

_MANIFEST = re.compile(rb'\{"luthier":(\d+),(?:"follows":(\d+),)?')
_MANIFEST_VERSION = 2
_LDS = 3
"""The address space of LDS (AMDGPUUsage, "Address Spaces")."""
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')


def read_object(object: CodeObject) -> DeviceContents:
    """Return the contents of a code object compiled with the compiler plugin.

    Raises:
        ToolError: it has no such bitcode, or damaged bitcode.
    """
    bitcode = object.section_data(BITCODE_SECTION)
    if bitcode is None:
        raise ToolError(
            f"no {BITCODE_SECTION} section, so no bitcode of Luthier's compiler plugin: "
            "is MARK_LUTHIER_DEVICE_MODULE in the source?",
            object=object.name,
        )
    return read_bitcode(bitcode, object.name, object.target)


def read_bitcode(bitcode: bytes, name: str, target: TargetId | None = None) -> DeviceContents:
    """Return the contents of the section: bitcode, optionally followed by that for the other wave size.

    Args:
        name: name of the section in errors.
        target: target of the bitcode; None: the one in the manifest, which has no features.

    Raises:
        ToolError: it is not bitcode of this version of the compiler plugin, or damaged.
    """
    bitcode, following = _parts(bitcode, name)
    contents = _read_one(bitcode, name, target)
    if not following:
        return contents
    other = _read_one(following, name, contents.target)
    problem = _mismatch(contents, other)
    return replace(contents, other=None if problem else other, one_wave_size=problem)


def _parts(section: bytes, name: str) -> tuple[bytes, bytes]:
    """Return the bitcode for each wave size; the second may be empty."""
    match = _MANIFEST.search(section)
    following = int(match[2] or 0) if match else 0
    if following >= len(section):
        raise ToolError("the bitcode is damaged: a part is missing", object=name)
    return section[: len(section) - following], section[len(section) - following :]


def _mismatch(contents: DeviceContents, other: DeviceContents) -> str:
    """Return the reason why two variants of a module cannot replace each other, or "".

    They must have the same hooks, and they share variables.
    """
    if {contents.wave_size, other.wave_size} != set(contents.target.target.wave_sizes):
        return f"its bitcode is for wave{contents.wave_size} and wave{other.wave_size}"
    hooks = {hook.symbol: hook.parameters for hook in contents.hooks}
    if hooks != {hook.symbol: hook.parameters for hook in other.hooks}:
        return "its hooks or their parameters differ"
    own = {variable.symbol: variable for variable in contents.variables}
    other_variables = {variable.symbol: variable for variable in other.variables}
    for symbol in own.keys() & other_variables.keys():
        if own[symbol] != other_variables[symbol] or _value(symbol, own) != _value(symbol, other_variables):
            return f"the shared variable {own[symbol].name} differs"
    return ""


def _value(symbol: str, variables: Mapping[str, DeviceVariable], outer: tuple[str, ...] = ()) -> object:
    """Return the initial value of a variable, without names of constants that it points to, which differ between the
    variants.
    """
    storage = variables[symbol].storage
    pointers = [
        (
            offset,
            _value(to, variables, (*outer, symbol))
            if to in variables and variables[to].constant and to not in outer
            else to,
            addend,
        )
        for offset, to, addend in storage.pointers
    ]
    return storage.align, storage.initial, storage.problem, pointers


def _read_one(bitcode: bytes, name: str, target: TargetId | None) -> DeviceContents:
    raw = _read_manifest(bitcode, name)
    try:
        return DeviceContents(
            target or TargetId.parse(raw["target"]),
            tuple(_hook(hook) for hook in raw["hooks"]),
            tuple(str(intrinsic["name"]) for intrinsic in raw["intrinsics"]),
            _placeable([_variable(variable) for variable in raw["variables"]]),
            str(raw["cuid"]),
            str(raw["llvm"]),
            bitcode,
            {0: 0, 32: 32, 64: 64}[raw.get("wave_size", 0)],
            lds={
                str(one["name"]): (int(one["size"]), int(one["align"]))
                for one in raw["variables"]
                if one["address_space"] == _LDS and not one.get("undefined") and int(one["size"])
            },
            only_added=frozenset(str(one["name"]) for one in raw["variables"] if one.get("only_added")),
            one_wave_size=str(raw.get("one_wave_size", "")),
            source=str(raw.get("source", "")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ToolError(f"malformed manifest in the bitcode: {problem!r}", object=name) from None


def _read_manifest(bitcode: bytes, name: str) -> dict[str, Any]:
    """Return the plugin's manifest as JSON.

    Metadata strings are plain bytes in bitcode, so any version of LLVM may have written it.
    """
    matches = list(_MANIFEST.finditer(bitcode))
    if not bitcode.startswith(BITCODE_MAGIC) or len(matches) != 1:
        raise ToolError("not bitcode of Luthier's compiler plugin", object=name)
    if int(matches[0][1]) != _MANIFEST_VERSION:
        raise ToolError(
            f"built with manifest version {int(matches[0][1])}, Luthier reads {_MANIFEST_VERSION}: rebuild it",
            object=name,
        )
    digest = _DIGEST.search(bitcode, matches[0].start())
    if digest is None:
        raise ToolError("the bitcode has no digest: built by an older compiler plugin; rebuild it", object=name)
    without = bitcode[: digest.start(1)] + b"0" * 64 + bitcode[digest.end(1) :]
    if hashlib.sha256(without).hexdigest().encode() != digest[1]:
        raise ToolError("the bitcode is damaged: its digest does not match", object=name)
    try:
        raw: dict[str, Any]
        raw, _ = json.JSONDecoder().raw_decode(bitcode[matches[0].start() :].decode("utf-8", "replace"))
    except ValueError as problem:
        raise ToolError(f"malformed manifest in the bitcode: {problem}", object=name) from None
    return raw


def _hook(raw: Mapping[str, Any]) -> Hook:
    return Hook(
        raw.get("source", raw["name"]).partition("(")[0],
        raw["name"],
        tuple(Parameter.of_llvm(p["type"], p.get("name", ""), p.get("signed")) for p in raw["parameters"]),
        location=f"{raw['file']}:{raw['line']}" if "file" in raw else "",
    )


def _variable(raw: Mapping[str, Any]) -> DeviceVariable:
    problem = ""
    if raw.get("undefined"):
        problem = "it is only declared"
    elif raw.get("incomplete"):
        problem = "its initial value cannot be computed before linking"
    elif raw.get("address_space", 1) not in (1, 4):
        problem = f"it is in address space {raw['address_space']}"
    size = raw["size"]
    return DeviceVariable(
        plain_name(raw["name"]),
        raw["name"],
        "",
        size,
        bool(raw.get("managed")),
        bool(raw.get("constant")),
        storage=VariableStorage(
            raw["align"],
            base64.b64decode(raw["bytes"]) if "bytes" in raw else bytes(size),
            tuple((offset, symbol, addend) for offset, symbol, addend in raw.get("pointers", ())),
            problem,
        ),
    )


def _placeable(variables: Sequence[DeviceVariable]) -> tuple[DeviceVariable, ...]:
    """Return the variables, with a problem if the initial value contains an address that no object will have."""
    placed = {variable.symbol: variable for variable in variables}
    while True:
        unknown = {
            name: symbol
            for name, variable in placed.items()
            for _, symbol, _ in variable.storage.pointers
            if not variable.storage.problem and (symbol not in placed or placed[symbol].storage.problem)
        }
        if not unknown:
            return tuple(placed.values())
        for name, symbol in unknown.items():
            problem = f"its initial value contains the address of {symbol}, which has none in a patched object"
            storage = replace(placed[name].storage, problem=problem)
            placed[name] = replace(placed[name], storage=storage)


def plain_name(symbol: str) -> str:
    """Return ``a::b`` for the Itanium names of variables (``_ZN1a1bE``, ``_ZL1b``); other symbols unchanged."""
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
