"""Processors as targets."""

from __future__ import annotations

import re

from luthier.arch.generation import Generation
from luthier.errors import TargetError


class Target(Generation, frozen=True, eq=False, kw_only=True):
    """Processor, with its own facts and those of its generation, which is its parent.

    There is one object per processor; pickling and copying preserve identity.
    """

    name: str
    """Processor name as LLVM spells it, e.g. ``gfx942``."""
    mach: int
    """EF_AMDGPU_MACH value in the ELF header flags."""
    generic: str | None = None
    """The generic processor whose code it also runs (AMDGPUUsage, "Generic Processors")."""
    generic_version: tuple[int, int, int] | None = None
    """Only for a generic processor, whose code several processors run: the version that ROCm's device library uses for
    it."""
    device_id: int | None = None
    """PCI id of a product, for processors that can be virtual devices: RX Vega, Ryzen with Vega (Raven,
    Raven 2, Renoir), Vega 12, MI50, MI100, MI250X, MI300X, MI350X; Radeon RX 5700 XT, Pro 5600M, RX 5500M, BC-250,
    RX 6800, RX 6700 XT, RX 6600 XT, Steam Deck, RX 6500 XT, 680M, 610M, RX 7900 XTX, RX 7800 XT, RX 7600, 780M, 890M,
    8060S, 860M, 840M, RX 9060 XT, RX 9070 XT. From libdrm 2.4.134, data/amdgpu.ids; those of gfx904, gfx90c and gfx1013
    from libhsakmt, src/topology.c."""

    llvm_processor: str | None = None
    """Processor for LLVM to decode, assemble and compile for, if LLVM does not know this one."""

    def __str__(self) -> str:
        return f"processor {self.name}"

    def __copy__(self) -> Target:
        return self

    @property
    def llvm_name(self) -> str:
        """Return the processor's name for LLVM."""
        return self.llvm_processor or self.name

    @property
    def is_generic(self) -> bool:
        """Return whether it is a name for code that several processors can run, not hardware."""
        return self.generic_version is not None

    @property
    def version(self) -> tuple[int, int, int]:
        """Return major version, minor version and stepping, as in the name."""
        return self.generic_version or version_in(self.name)

    def is_run_by(self, other: Target) -> bool:
        """Return whether `other` runs this processor's code: it is the same, or this is its generic processor."""
        return self is other or self.name == other.generic

    def shares_generic(self, other: Target) -> bool:
        """Return whether both have the same generic processor, or one is the other's generic processor."""
        left, right = (one.name if one.is_generic else one.generic for one in (self, other))
        return self is other or left == right is not None


def version_in(name: str) -> tuple[int, int, int]:
    """Return the version in the name of a processor that is not generic: (9, 4, 2) for ``gfx942``.

    Raises:
        TargetError: not the name of a processor.
    """
    match = re.fullmatch(r"gfx([0-9]+)([0-9a-f])([0-9a-f])", name)
    if not match:
        raise TargetError(f"unknown processor {name!r}", target=name)
    return int(match[1]), int(match[2], 16), int(match[3], 16)
