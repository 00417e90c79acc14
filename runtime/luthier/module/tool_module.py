"""A tool's device side: hooks and variables, read from the code objects that the compiler plugin put bitcode into."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from luthier.errors import HookError, ToolError
from luthier.isa.targets import TargetId
from luthier.objects import CodeObject, load_objects

BITCODE_SECTION = ".llvmbc"
_BITCODE_MAGIC = b"BC\xc0\xde"
_MANIFEST = re.compile(rb'\{"luthier":(\d+),')
_MANIFEST_VERSION = 1
_PRIVATE_POINTER = "ptr addrspace(5)"  # the optimizer drops `byval` where it can
_SIGNS = {"int": True, "uint": False, "bool": False}
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')


@dataclass(frozen=True)
class Parameter:
    """One parameter of a hook."""

    name: str
    type: str
    """LLVM type, e.g. ``i1``, ``ptr``, ``<4 x float>``."""
    signed: bool | None
    """Of an integer, as far as known."""
    in_memory: bool = False
    """A structure that the caller leaves in memory: no hook can have it."""


@dataclass(frozen=True, eq=False)  # one object a hook: templates are cached by it
class Hook:
    """A hook of a tool's module, to be given to `InstrumentationTask.insert_hook_before`."""

    name: str
    """Symbol name."""
    source: str
    """Name as written in the source, e.g. ``count<float>(int)``."""
    parameters: tuple[Parameter, ...]
    location: str
    """``file:line``, or empty."""
    module: ToolModule

    def __str__(self) -> str:
        return f"{self.source}({', '.join(f'{p.type} {p.name}'.strip() for p in self.parameters)})"


@dataclass(frozen=True)
class DeviceVariable:
    """A variable of a tool's module."""

    name: str
    size: int
    """Bytes of what the author declared, also when it is managed."""
    align: int
    managed: bool
    constant: bool
    initial: bytes
    """Initial value, `size` bytes."""
    pointers: tuple[tuple[int, str, int], ...]
    """Addresses inside the initial value: (byte offset, symbol, addend)."""
    problem: str
    """Why it cannot be placed in an object, or empty."""


def _without_digest(bitcode: bytes, digest: re.Match[bytes]) -> bytes:
    return bitcode[: digest.start(1)] + b"0" * 64 + bitcode[digest.end(1) :]


def read_manifest(bitcode: bytes, name: str) -> dict[str, Any]:
    """What the compiler plugin wrote about a module into its bitcode (compiler_plugin/README.md describes it).

    Metadata strings are plain bytes in bitcode, so it can be read whatever LLVM wrote it.

    Raises:
        ToolError: not such bitcode, or of another version; `name` is what the error calls it.
    """
    found = list(_MANIFEST.finditer(bitcode))
    if not bitcode.startswith(_BITCODE_MAGIC) or len(found) != 1:
        raise ToolError("not bitcode that Luthier's compiler plugin wrote", object=name)
    if int(found[0][1]) != _MANIFEST_VERSION:
        raise ToolError(
            f"built with manifest version {int(found[0][1])}, this Luthier reads {_MANIFEST_VERSION}: rebuild it",
            object=name,
        )
    digest = _DIGEST.search(bitcode, found[0].start())
    if digest is None:
        raise ToolError("the bitcode has no digest: built by an older compiler plugin; rebuild it", object=name)
    if hashlib.sha256(_without_digest(bitcode, digest)).hexdigest().encode() != digest[1]:
        raise ToolError("the bitcode is damaged: its digest does not match", object=name)
    try:
        raw: dict[str, Any]
        raw, _ = json.JSONDecoder().raw_decode(bitcode[found[0].start() :].decode("utf-8", "replace"))
    except ValueError as problem:
        raise ToolError(f"malformed manifest in the bitcode: {problem}", object=name) from None
    return raw


class _Image:
    """One target's bitcode with its manifest."""

    def __init__(self, bitcode: bytes, name: str, target: TargetId | None = None) -> None:
        self.bitcode = bitcode
        raw = read_manifest(bitcode, name)
        try:
            self.target = target or TargetId.parse(raw["target"])
            self.cuid = str(raw["cuid"])
            self.hooks = [_HookText.parse(hook) for hook in raw["hooks"]]
            self.variables = {variable["name"]: _variable(variable) for variable in raw["variables"]}
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise ToolError(f"malformed manifest in the bitcode: {problem!r}", object=name) from None

    @classmethod
    def of(cls, object: CodeObject) -> _Image:
        bitcode = object.section_data(BITCODE_SECTION)
        if bitcode is None:
            raise ToolError(
                f"no {BITCODE_SECTION} section: not a tool built with Luthier's compiler plugin", object=object.name
            )
        return cls(bitcode, object.name, object.target)


@dataclass(frozen=True)
class _HookText:
    """A hook as the manifest describes it."""

    name: str
    source: str
    parameters: tuple[Parameter, ...]
    location: str

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> _HookText:
        return cls(
            raw["name"],
            raw.get("source", raw["name"]).partition("(")[0],
            tuple(
                Parameter(p.get("name", ""), p["type"], p.get("signed"), "byval" in p or p["type"] == _PRIVATE_POINTER)
                for p in raw["parameters"]
            ),
            f"{raw['file']}:{raw['line']}" if "file" in raw else "",
        )


class ToolModule:
    """A device module of a tool, for one or several targets.

    Hooks are attributes: ``module.count_vector``; `hook` finds those whose names are no identifiers. Make one by
    `from_package`, `load` or `load_all`.
    """

    def __init__(self, images: Sequence[_Image], name: str) -> None:
        self.name = name
        self._images = images

    @classmethod
    def from_package(cls, package: str, module: str = "device") -> ToolModule:
        """The module that a tool package's build put beside its Python code.

        Raises:
            ToolError: no such package or module, or not one of the compiler plugin's.
        """
        return _from_package(package, module)

    @classmethod
    def load(cls, source: bytes | str | os.PathLike[str]) -> ToolModule:
        """The one module in an offload bundle, code object, executable, library, archive, or a file of bitcode.

        Raises:
            ToolError: none or several of them.
        """
        found = cls.load_all(source)
        if len(found) != 1:
            names = ", ".join(f"{module.cuid} ({', '.join(module.hooks)})" for module in found)
            raise ToolError(f"holds {len(found)} device modules; choose one by load_all: {names}", object=found[0].name)
        return found[0]

    @classmethod
    def load_all(cls, source: bytes | str | os.PathLike[str]) -> list[ToolModule]:
        """Every module in a file, as `load` reads it. Code objects with one CUID are one module for several targets.

        Raises:
            ToolError: there is none.
        """
        name = "<memory>" if isinstance(source, bytes) else os.fspath(source)
        try:
            data = source if isinstance(source, bytes) else Path(source).read_bytes()
        except OSError as problem:
            raise ToolError(f"cannot read: {problem.strerror}", object=name) from None
        if data.startswith(_BITCODE_MAGIC):
            return [cls([_Image(data, name)], name)]
        images = [
            _Image.of(object) for object in load_objects(source) if object.section_data(BITCODE_SECTION) is not None
        ]
        if not images:
            raise ToolError(
                f"no code object with a {BITCODE_SECTION} section: was it built with Luthier's plugin?", object=name
            )
        modules: dict[str, list[_Image]] = {}
        for image in images:
            modules.setdefault(image.cuid, []).append(image)
        return [cls(group, name) for group in modules.values()]

    @property
    def cuid(self) -> str:
        """The compilation-unit id that clang gave the module, the same for every target; empty before clang 18."""
        return self._images[0].cuid

    @property
    def targets(self) -> tuple[TargetId, ...]:
        return tuple(image.target for image in self._images)

    @functools.cached_property
    def hooks(self) -> Mapping[str, Hook]:
        """Symbol name -> hook."""
        return {
            text.name: Hook(text.name, text.source, text.parameters, text.location, self)
            for text in self._images[0].hooks
        }

    def describe(self, manifest: Mapping[str, Any]) -> None:
        """Take parameters' names and signs from the build's manifest, which read the sources: bitcode may lack them.

        Raises:
            ToolError: not a manifest of this module.
        """
        image = self._images[0]
        try:
            known = {hook["symbol"]: hook["parameters"] for hook in manifest["hooks"]}
            image.hooks = [
                replace(
                    hook,
                    parameters=tuple(
                        replace(parameter, name=told["name"], signed=_SIGNS.get(told["kind"], parameter.signed))
                        for parameter, told in zip(hook.parameters, known[hook.name], strict=True)
                    ),
                )
                for hook in image.hooks
            ]
        except (KeyError, TypeError, ValueError) as problem:
            raise ToolError(f"its manifest does not fit its bitcode: {problem!r}", object=self.name) from None

    def hook(self, name: str) -> Hook:
        """The hook with this symbol or source name.

        Raises:
            HookError: none, or several instances of a template.
        """
        if name in self.hooks:
            return self.hooks[name]
        found = [hook for hook in self.hooks.values() if hook.source == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise HookError(f"{self.name} has several hooks {name!r}: {', '.join(hook.name for hook in found)}")
        raise HookError(f"{self.name} has no hook {name!r}; it has {', '.join(self.hooks) or 'none'}")

    def __getattr__(self, name: str) -> Hook:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.hook(name)
        except HookError as problem:
            raise AttributeError(str(problem)) from None

    @property
    def variables(self) -> Mapping[str, DeviceVariable]:
        """Symbol name -> variable."""
        return self._images[0].variables

    def bitcode(self, target: TargetId) -> bytes:
        """The bitcode for an application of this target.

        Raises:
            ToolError: the module was not built for it.
        """
        fitting = [
            image
            for image in self._images
            if image.target.target is target.target
            and image.target.xnack in (None, target.xnack)
            and image.target.sramecc in (None, target.sramecc)
        ]
        if not fitting:
            raise ToolError(
                f"not built for this target, only for {', '.join(str(built) for built in self.targets)}",
                object=self.name,
                target=str(target),
            )
        return fitting[0].bitcode


def _variable(raw: Mapping[str, Any]) -> DeviceVariable:
    problem = ""
    if raw.get("undefined"):
        problem = "it is only declared"
    elif raw.get("incomplete"):
        problem = "its initial value cannot be computed before linking"
    elif raw.get("address_space", 1) not in (1, 4):
        problem = f"it is in address space {raw['address_space']}"
    size = raw["size"]
    initial = base64.b64decode(raw["bytes"]) if "bytes" in raw else bytes(size)
    return DeviceVariable(
        raw["name"],
        size,
        raw["align"],
        bool(raw.get("managed")),
        bool(raw.get("constant")),
        initial,
        tuple((offset, symbol, addend) for offset, symbol, addend in raw.get("pointers", ())),
        problem,
    )


def _follow_sources(folder: Path) -> None:
    """Build what lies in a source tree again if its sources have changed; nothing to do for what was installed."""
    if (folder / ".luthier-editable.json").is_file():
        from luthier_build.editable import refresh

        refresh(folder)


@functools.lru_cache(maxsize=64)
def _from_package(package: str, module: str) -> ToolModule:
    try:
        folder = importlib.resources.files(package)
        if isinstance(folder, Path):
            _follow_sources((folder / f"{module}.hipfb").resolve().parent)
        data = (folder / f"{module}.hipfb").read_bytes()
        described = json.loads((folder / f"{module}.json").read_text())
    except (ImportError, OSError, ValueError) as problem:
        raise ToolError(f"package {package} has no built device module {module!r}: {problem}") from problem
    loaded = ToolModule.load(data)
    loaded.name = f"{package}.{module}"
    loaded.describe(described)
    return loaded
