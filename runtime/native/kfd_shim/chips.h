// Facts of chips that only graphics drivers and their libraries use: family and revision (amdgpu_drm.h, amdgpu_asic.h),
// and the layout of tiles (GB_ADDR_CONFIG, as the drivers set it). A ROCr that supports images does not start without
// them.
#pragma once

#include <algorithm>
#include <iterator>

#include "service.h"

namespace luthier {

struct Chip {
  const char *target;
  uint32_t family, revision, tiles;
};

// Families: AMDGPU_FAMILY_* of include/uapi/drm/amdgpu_drm.h in Linux. Revisions: the first of a chip, what Linux'
// drivers/gpu/drm/amd/amdgpu/ (soc15.c, nv.c, soc21.c, soc24.c) adds to external_rev_id; they are in the ranges of
// Mesa's and ROCr's amdgpu_asic_addr.h. Tiles: for GFX9 Linux' golden values (gfx_v9_0.c, gfx_v9_4_3.c:
// GOLDEN_GB_ADDR_CONFIG); for later ones pipes and packers of the chip as Mesa's tests know it
// (src/amd/common/ac_fake_hw_db.h).
inline constexpr Chip kChips[] = {
    {"gfx900", 141, 0x01, 0x2A11'4042}, // Vega 10
    {"gfx902", 142, 0x01, 0x2400'0042}, // Raven
    {"gfx904", 141, 0x14, 0x2410'4041}, // Vega 12
    {"gfx909", 142, 0x81, 0x2601'3041}, // Raven 2
    {"gfx90c", 142, 0x91, 0x2201'0042}, // Renoir
    {"gfx906", 141, 0x28, 0x2A11'4042}, // Vega 20
    {"gfx908", 141, 0x32, 0x2A11'4042}, // Arcturus
    {"gfx90a", 141, 0x3C, 0x2A11'4042}, // Aldebaran
    {"gfx942", 141, 0x46, 0x2A11'4042}, // GC 9.4.3
    {"gfx950", 141, 0x50, 0x2A11'4042}, // GC 9.5.0
    {"gfx1010", 143, 0x01, 0x10'0044},  // Navi 10
    {"gfx1011", 143, 0x0A, 0x10'0044},  // Navi 12; its tiles are not documented: those of Navi 10
    {"gfx1012", 143, 0x14, 0x143},      // Navi 14
    {"gfx1013", 143, 0x82, 0x143},      // Cyan Skillfish; its tiles are not documented: those of Navi 14
    {"gfx1030", 143, 0x28, 0x444},      // Navi 21
    {"gfx1031", 143, 0x32, 0x343},      // Navi 22; for it and the following, Mesa's entry of the next size
    {"gfx1032", 143, 0x3C, 0x343},      // Navi 23
    {"gfx1033", 144, 0x01, 0x242},      // Van Gogh
    {"gfx1034", 143, 0x46, 0x242},      // Navi 24
    {"gfx1035", 146, 0x20, 0x242},      // Rembrandt
    {"gfx1036", 149, 0x01, 0x041},      // Raphael
    {"gfx1100", 145, 0x01, 0x545},      // GC 11.0.0, Navi 31
    {"gfx1101", 145, 0x20, 0x444},      // GC 11.0.3, Navi 32
    {"gfx1102", 145, 0x10, 0x343},      // GC 11.0.2, Navi 33
    {"gfx1103", 148, 0x01, 0x242},      // GC 11.0.1, Phoenix
    {"gfx1150", 150, 0x01, 0x242},      // GC 11.5.0, Strix; its tiles are not documented: those of Phoenix
    {"gfx1151", 150, 0xC1, 0x242},      // GC 11.5.1, Strix Halo; likewise
    {"gfx1152", 150, 0x40, 0x242},      // GC 11.5.2, Krackan; likewise
    {"gfx1153", 150, 0x50, 0x242},      // GC 11.5.3, Krackan 2; likewise
    {"gfx1200", 152, 0x40, 0x404},      // GC 12.0.0, Navi 44; Mesa has one entry for GFX12
    {"gfx1201", 152, 0x50, 0x404},      // GC 12.0.1, Navi 48; likewise
};

// Return the facts of a chip; zeros if it is not known.
inline Chip chip_of(const Gpu &gpu) {
  const Chip *entry =
      std::find_if(std::begin(kChips), std::end(kChips), [&](const Chip &chip) { return gpu.target == chip.target; });
  return entry == std::end(kChips) ? Chip{} : *entry;
}

} // namespace luthier
