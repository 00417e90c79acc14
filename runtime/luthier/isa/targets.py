"""The table of AMD GPU targets: one frozen `Target` a processor, looked up exactly.

Sources: LLVM AMDGPUUsage ("Processors", "Kernel Descriptor"); llvm/BinaryFormat/ELF.h for the machine numbers. The
tests compare every row with what LLVM assembles.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace

from luthier.errors import TargetError


@dataclass(frozen=True)
class Target:
    """One processor, with what code generation and patching need to know of it."""

    name: str
    """Processor name as LLVM spells it, e.g. ``gfx942``."""
    mach: int
    """EF_AMDGPU_MACH value in the ELF header flags."""
    major: int
    """Instruction-set generation: 9, 10, 11 or 12."""
    default_wave_size: int
    """Lanes per wavefront the compiler chooses when not told."""
    wave_sizes: tuple[int, ...]
    """Lanes per wavefront the hardware supports."""
    addressable_vgprs: int
    """Vector registers one wave can name in one file (VGPRs, and as many AGPRs where there are any)."""
    has_agprs: bool = False
    unified_vgprs: bool = False
    """AGPRs share the VGPR allocation and start at ``accum_offset`` (gfx90a and later GFX9)."""
    waves_per_simd: int = 10
    """Most waves resident on one SIMD."""
    large_vgpr_file: bool = False
    """The register file is half as large again as its generation's (LLVM's 1_5xVGPRs), in larger allocation steps."""
    sgpr_limit: int = 102
    """Allocatable SGPRs, without VCC, trap and special registers."""
    supports_xnack: bool = False
    supports_sramecc: bool = False
    architected_flat_scratch: bool = False
    architected_sgprs: bool = False
    """Work-group ids arrive in trap temporaries instead of user SGPRs."""
    packed_work_item_ids: bool = False
    """Work-item x, y and z share VGPR0, 10 bits each."""
    kernarg_preload: bool = False
    lds_bytes: int = 65536
    tied_vector_alignment: int = 1
    """Alignment, in registers, that VGPR tuples need (2 on gfx90a and later GFX9)."""

    def vgpr_encoding_granule(self, wave_size: int) -> int:
        """VGPRs per step of GRANULATED_WORKITEM_VGPR_COUNT in the kernel descriptor."""
        if self.major == 9:
            return 8 if self.unified_vgprs else 4
        return 8 if wave_size == 32 else 4

    def vgpr_allocation_granule(self, wave_size: int) -> int:
        """VGPRs per step in which the hardware really allocates; from gfx1030 on coarser than the encoding."""
        granule = self.vgpr_encoding_granule(wave_size)
        if self.major == 9 or self.name.startswith(("gfx101", "gfx10-1")):
            return granule
        return granule * 3 if self.large_vgpr_file else granule * 2

    def vgpr_file_size(self, wave_size: int) -> int:
        """VGPRs of one SIMD that its waves share, AGPRs included where the file is unified."""
        if self.major == 9:
            return 512 if self.unified_vgprs else 256
        size = 1024 if wave_size == 32 else 512
        return size * 3 // 2 if self.large_vgpr_file else size

    def occupancy(self, vgprs: int, wave_size: int) -> int:
        """Waves resident on one SIMD when each has `vgprs` (in a unified file: VGPRs and AGPRs together)."""
        granule = self.vgpr_allocation_granule(wave_size)
        allocated = -(-max(vgprs, 1) // granule) * granule
        return min(self.waves_per_simd, self.vgpr_file_size(wave_size) // allocated)


def _table() -> dict[str, Target]:
    gfx9 = Target("gfx900", 0x2C, 9, 64, (64,), 256, supports_xnack=True)
    gfx908 = replace(gfx9, name="gfx908", mach=0x30, has_agprs=True, supports_sramecc=True)
    gfx90a = replace(
        gfx908,
        name="gfx90a",
        mach=0x3F,
        unified_vgprs=True,
        waves_per_simd=8,
        packed_work_item_ids=True,
        kernarg_preload=True,
        tied_vector_alignment=2,
    )
    gfx942 = replace(gfx90a, name="gfx942", mach=0x4C, architected_flat_scratch=True)
    gfx10 = Target("gfx1010", 0x33, 10, 32, (32, 64), 256, waves_per_simd=20, sgpr_limit=106, supports_xnack=True)
    gfx1030 = replace(gfx10, name="gfx1030", mach=0x36, waves_per_simd=16, supports_xnack=False)
    gfx11 = replace(
        gfx1030, name="gfx1100", mach=0x41, major=11, architected_flat_scratch=True, packed_work_item_ids=True
    )
    big_gfx11 = replace(gfx11, large_vgpr_file=True)
    gfx12 = replace(big_gfx11, name="gfx1200", mach=0x48, major=12, architected_sgprs=True)
    rows = [
        gfx9,
        replace(gfx9, name="gfx902", mach=0x2D),
        replace(gfx9, name="gfx904", mach=0x2E),
        replace(gfx9, name="gfx906", mach=0x2F, supports_sramecc=True),
        gfx908,
        replace(gfx9, name="gfx909", mach=0x31),
        gfx90a,
        replace(gfx9, name="gfx90c", mach=0x32),
        gfx942,
        replace(gfx942, name="gfx950", mach=0x4F, lds_bytes=163840),
        replace(gfx9, name="gfx9-generic", mach=0x51),
        replace(gfx942, name="gfx9-4-generic", mach=0x5F),
        gfx10,
        replace(gfx10, name="gfx1011", mach=0x34),
        replace(gfx10, name="gfx1012", mach=0x35),
        replace(gfx10, name="gfx1013", mach=0x42),
        replace(gfx10, name="gfx10-1-generic", mach=0x52),
        gfx1030,
        replace(gfx1030, name="gfx1031", mach=0x37),
        replace(gfx1030, name="gfx1032", mach=0x38),
        replace(gfx1030, name="gfx1033", mach=0x39),
        replace(gfx1030, name="gfx1034", mach=0x3E),
        replace(gfx1030, name="gfx1035", mach=0x3D),
        replace(gfx1030, name="gfx1036", mach=0x45),
        replace(gfx1030, name="gfx10-3-generic", mach=0x53),
        big_gfx11,
        replace(big_gfx11, name="gfx1101", mach=0x46),
        replace(gfx11, name="gfx1102", mach=0x47),
        replace(gfx11, name="gfx1103", mach=0x44),
        replace(gfx11, name="gfx1150", mach=0x43),
        replace(big_gfx11, name="gfx1151", mach=0x4A),
        replace(gfx11, name="gfx1152", mach=0x55),
        replace(gfx11, name="gfx1153", mach=0x58),
        replace(gfx11, name="gfx11-generic", mach=0x54),
        gfx12,
        replace(gfx12, name="gfx1201", mach=0x4E),
        replace(gfx12, name="gfx12-generic", mach=0x59),
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
    """A processor with its feature settings, e.g. ``gfx942:sramecc+:xnack-`` (None: any)."""

    target: Target
    sramecc: bool | None = None
    xnack: bool | None = None

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
