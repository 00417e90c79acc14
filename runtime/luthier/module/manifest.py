"""The manifest: a JSON file beside each device module's bundle that says what is in it.

`luthier_build.manifest` makes it from code objects and sources.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from luthier import __version__
from luthier.errors import ToolError
from luthier.module.description import DeviceVariable, Hook, Parameter

FORMAT = "luthier-device-module"
VERSION = 1
"""Raised when a reader of the version before would misunderstand the file."""


@dataclass(frozen=True)
class Manifest:
    """Everything a device module offers."""

    package: str
    module: str
    bundle: str
    """File name of the offload bundle, in the same folder."""
    targets: tuple[str, ...]
    hooks: tuple[Hook, ...]
    variables: tuple[DeviceVariable, ...]
    intrinsics: tuple[str, ...]
    """Names of the intrinsics that the hooks call and the runtime must know, e.g. ``luthier::readReg.i32.i32``."""
    cuid: str
    llvm: str
    """Version of the LLVM that wrote the bitcode, e.g. ``22.1.8``."""
    compiler: str
    """Version line of the compiler."""
    wave_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    """Target -> lanes a wave of the kernels that its hooks can go into; empty where an earlier Luthier built it."""
    luthier: str = __version__

    def to_json(self) -> str:
        """The file's text; the same for the same contents."""
        text = {"format": FORMAT, "version": VERSION, **_members(self)}
        return json.dumps(text, default=_members, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest.

        Raises:
            ToolError: no such file, not a manifest, or one of a newer Luthier.
        """
        try:
            text = path.read_text()
        except OSError as problem:
            raise ToolError(f"cannot read manifest: {problem.strerror}", object=str(path)) from problem
        except ValueError as problem:
            raise ToolError(f"not a manifest: {problem}", object=str(path)) from problem
        return cls.from_text(text, str(path))

    @classmethod
    def from_text(cls, text: str, place: str) -> Manifest:
        """A manifest from a file's text; `place` names it in errors."""
        try:
            raw = json.loads(text)
        except ValueError as problem:
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
            return cls(
                package=raw["package"],
                module=raw["module"],
                bundle=raw["bundle"],
                targets=tuple(raw["targets"]),
                hooks=tuple(_hook(hook) for hook in raw["hooks"]),
                variables=tuple(DeviceVariable(**variable) for variable in raw["variables"]),
                intrinsics=tuple(raw["intrinsics"]),
                cuid=raw["cuid"],
                llvm=raw["llvm"],
                compiler=raw["compiler"],
                wave_sizes={target: tuple(sizes) for target, sizes in raw.get("wave_sizes", {}).items()},
                luthier=raw["luthier"],
            )
        except (AttributeError, KeyError, TypeError) as problem:
            raise ToolError(f"damaged manifest: {problem}", object=place) from problem


def _members(value: object) -> dict[str, Any]:
    """What of a description the file holds: not what belongs to a loaded module alone."""
    return {name: member for name, member in vars(value).items() if name not in ("owner", "storage")}


def _hook(raw: dict[str, Any]) -> Hook:
    parameters = tuple(Parameter(**parameter) for parameter in raw["parameters"])
    return Hook(**{**raw, "parameters": parameters, "targets": tuple(raw["targets"])})
