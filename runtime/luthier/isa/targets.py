"""The table of AMD GPU targets: one frozen `Target` a processor, looked up exactly.

What several processors have in common is in `luthier.isa.generations`.

Sources: LLVM AMDGPUUsage ("Processors", "Generic Processors"); llvm/BinaryFormat/ELF.h for the machine numbers. The
tests compare every row with what LLVM assembles.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from luthier.errors import TargetError
from luthier.isa.generations import GFX9, GFX10, GFX10_3, GFX11, GFX12, GFX90A, GFX908, GFX940, GFX1250, Generation


@dataclass(frozen=True, eq=False, kw_only=True)
class Target(Generation):
    """One processor: the facts of its generation, and its own.

    There is one object for each; pickling and copying keep it so.
    """

    name: str
    """Processor name as LLVM spells it, e.g. ``gfx942``."""
    mach: int
    """EF_AMDGPU_MACH value in the ELF header flags."""
    supports_xnack: bool = False
    supports_sramecc: bool = False
    lds_bytes: int = 65536
    generic: str | None = None
    """The generic processor whose code it runs too (AMDGPUUsage, "Generic Processors")."""
    is_generic: bool = False
    """It is no hardware, but what several processors can run."""
    device_id: int | None = None
    """PCI id of a product with it (libdrm 2.4.134, data/amdgpu.ids), for the processors that can be virtual devices:
    MI50, MI100, MI250X, MI300X, MI350X; Radeon RX 6800, RX 7900 XTX, RX 7800 XT, RX 7600, 780M, 890M, 8060S,
    RX 9060 XT, RX 9070 XT."""

    @property
    def version(self) -> tuple[int, int, int]:
        """Major version, minor version and stepping, as in the name."""
        return version_of(self.name)

    def is_run_by(self, other: Target) -> bool:
        """Whether `other` runs this processor's code: it is the same, or this is the generic one that it belongs to."""
        return self is other or self.name == other.generic

    def __reduce__(self) -> tuple[Any, ...]:
        return target_named, (self.name,)


_GENERIC_VERSIONS = {
    "gfx9-generic": (9, 0, 0),
    "gfx9-4-generic": (9, 4, 2),
    "gfx10-1-generic": (10, 1, 0),
    "gfx10-3-generic": (10, 3, 0),
    "gfx11-generic": (11, 0, 3),
    "gfx12-generic": (12, 0, 0),
}
"""Not computable from the name: ROCm's device library takes a generic processor for one of its members."""


def version_of(processor: str) -> tuple[int, int, int]:
    """Major version, minor version and stepping of a processor, in the table or not: (9, 4, 2) for ``gfx942``.

    Raises:
        TargetError: not the name of a processor.
    """
    if processor in _GENERIC_VERSIONS:
        return _GENERIC_VERSIONS[processor]
    match = re.fullmatch(r"gfx([0-9]+)([0-9a-f])([0-9a-f])", processor)
    if not match:
        raise TargetError(f"unknown processor {processor!r}", target=processor)
    return int(match[1]), int(match[2], 16), int(match[3], 16)


def _target(generation: Generation, name: str, mach: int, **own: Any) -> Target:
    return Target(**vars(generation) | {"name": name, "mach": mach} | own)


def _table() -> dict[str, Target]:
    gfx9 = {"supports_xnack": True, "generic": "gfx9-generic"}
    gfx9_ecc = {"supports_xnack": True, "supports_sramecc": True}
    gfx94 = {**gfx9_ecc, "generic": "gfx9-4-generic"}
    gfx10_1 = {"supports_xnack": True, "generic": "gfx10-1-generic"}
    gfx10_3 = {"generic": "gfx10-3-generic"}
    gfx11 = {"generic": "gfx11-generic"}
    big_gfx11 = {**gfx11, "vgpr_file": GFX12.vgpr_file}  # LLVM's feature 1_5xVGPRs
    gfx12 = {"generic": "gfx12-generic"}
    rows = [
        _target(GFX9, "gfx900", 0x2C, **gfx9),
        _target(GFX9, "gfx902", 0x2D, **gfx9),
        _target(GFX9, "gfx904", 0x2E, **gfx9),
        _target(GFX9, "gfx906", 0x2F, **gfx9, supports_sramecc=True, device_id=0x66A1),
        _target(GFX908, "gfx908", 0x30, **gfx9_ecc, device_id=0x738C),
        _target(GFX9, "gfx909", 0x31, **gfx9),
        _target(GFX90A, "gfx90a", 0x3F, **gfx9_ecc, device_id=0x740C),
        _target(GFX9, "gfx90c", 0x32, **gfx9),
        _target(GFX940, "gfx942", 0x4C, **gfx94, device_id=0x74A1),
        _target(GFX940, "gfx950", 0x4F, **gfx94, lds_bytes=163840, lds_banks=64, lds_by_lane=False, device_id=0x75A0),
        _target(GFX9, "gfx9-generic", 0x51, supports_xnack=True, is_generic=True),
        _target(GFX940, "gfx9-4-generic", 0x5F, **gfx9_ecc, is_generic=True, lds_by_lane=False),
        _target(GFX10, "gfx1010", 0x33, **gfx10_1),
        _target(GFX10, "gfx1011", 0x34, **gfx10_1),
        _target(GFX10, "gfx1012", 0x35, **gfx10_1),
        _target(GFX10, "gfx1013", 0x42, **gfx10_1),
        _target(GFX10, "gfx10-1-generic", 0x52, supports_xnack=True, is_generic=True),
        _target(GFX10_3, "gfx1030", 0x36, **gfx10_3, device_id=0x73BF),
        _target(GFX10_3, "gfx1031", 0x37, **gfx10_3),
        _target(GFX10_3, "gfx1032", 0x38, **gfx10_3),
        _target(GFX10_3, "gfx1033", 0x39, **gfx10_3),
        _target(GFX10_3, "gfx1034", 0x3E, **gfx10_3),
        _target(GFX10_3, "gfx1035", 0x3D, **gfx10_3),
        _target(GFX10_3, "gfx1036", 0x45, **gfx10_3),
        _target(GFX10_3, "gfx10-3-generic", 0x53, is_generic=True),
        _target(GFX11, "gfx1100", 0x41, **big_gfx11, device_id=0x744C),
        _target(GFX11, "gfx1101", 0x46, **big_gfx11, device_id=0x747E),
        _target(GFX11, "gfx1102", 0x47, **gfx11, device_id=0x7480),
        _target(GFX11, "gfx1103", 0x44, **gfx11, device_id=0x15BF),
        _target(GFX11, "gfx1150", 0x43, **gfx11, device_id=0x150E),
        _target(GFX11, "gfx1151", 0x4A, **big_gfx11, device_id=0x1586),
        _target(GFX11, "gfx1152", 0x55, **gfx11),
        _target(GFX11, "gfx1153", 0x58, **gfx11),
        _target(GFX11, "gfx11-generic", 0x54, is_generic=True),
        _target(GFX12, "gfx1200", 0x48, **gfx12, device_id=0x7590),
        _target(GFX12, "gfx1201", 0x4E, **gfx12, device_id=0x7550),
        _target(GFX12, "gfx12-generic", 0x59, is_generic=True),
        _target(GFX1250, "gfx1250", 0x49, lds_bytes=327680),
        _target(GFX1250, "gfx1251", 0x5A, lds_bytes=327680),
    ]
    return {row.name: row for row in rows}


TARGETS: dict[str, Target] = _table()
_BY_MACH = {target.mach: target for target in TARGETS.values()}


def target_named(name: str) -> Target:
    """The target called exactly `name` (a bare processor, no features).

    Raises:
        TargetError: no such processor, with the known ones.
    """
    try:
        return TARGETS[name]
    except KeyError:
        raise TargetError(f"unknown target {name!r}; known: {', '.join(TARGETS)}") from None


def target_of_mach(mach: int) -> Target:
    """The target whose EF_AMDGPU_MACH number is `mach`."""
    try:
        return _BY_MACH[mach]
    except KeyError:
        raise TargetError(f"no known target has EF_AMDGPU_MACH {mach:#x}") from None


_TRIPLE = re.compile(r"^(?:[a-z]\w*-)?amdgcn-[^-]*-[^-]*-[^-]*-")
"""What bundles and metadata put before the processor: an optional offload kind and the four parts of a triple."""


@dataclass(frozen=True)
class TargetId:
    """A processor with its feature settings, e.g. ``gfx942:sramecc+:xnack-`` (None: any).

    It stands for a set of devices: one setting of each feature or, where it leaves a feature open, both; of a generic
    processor, all processors that run its code. `covers` and `accepts` are the two questions about such sets.
    """

    target: Target
    sramecc: bool | None = None
    xnack: bool | None = None

    def covers(self, other: TargetId) -> bool:
        """Whether every device that `other` stands for is one that this id stands for.

        So code built for this id can be put into code built for `other`, and code for `other` is among what a user
        means who asks for this id.

        Source: LLVM AMDGPUUsage, "Target ID" and "Generic Processors".
        """
        return self.target.is_run_by(other.target) and all(
            mine is None or mine == theirs for mine, theirs in self._settings(other)
        )

    def accepts(self, code: TargetId) -> bool:
        """Whether a device called so can run `code`. A setting that the device leaves open is as the code wants it."""
        return code.target.is_run_by(self.target) and all(
            device is None or built in (None, device) for device, built in self._settings(code)
        )

    def _settings(self, other: TargetId) -> tuple[tuple[bool | None, bool | None], ...]:
        """This id's and the other's setting of each feature."""
        return (self.sramecc, other.sramecc), (self.xnack, other.xnack)

    @classmethod
    @functools.lru_cache(maxsize=256)
    def parse(cls, text: str) -> TargetId:
        """Read a target id as clang's ``--offload-arch`` and code-object metadata spell it.

        Raises:
            TargetError: unknown processor or feature, a feature the processor lacks, or one given twice.
        """
        name, *features = _TRIPLE.sub("", text).split(":")
        target = target_named(name)
        settings: dict[str, bool] = {}
        for feature in features:
            key, sign = feature[:-1], feature[-1:]
            if key not in ("sramecc", "xnack") or sign not in ("+", "-") or key in settings:
                raise TargetError(f"malformed target feature {feature!r} in {text!r}")
            if not (target.supports_xnack if key == "xnack" else target.supports_sramecc):
                raise TargetError(f"{name} has no feature {key}", target=text)
            settings[key] = sign == "+"
        return cls(target, settings.get("sramecc"), settings.get("xnack"))

    def __str__(self) -> str:
        parts = [self.target.name]
        for key, value in (("sramecc", self.sramecc), ("xnack", self.xnack)):
            if value is not None:
                parts.append(f"{key}{'+' if value else '-'}")
        return ":".join(parts)
