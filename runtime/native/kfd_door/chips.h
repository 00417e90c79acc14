// Facts of chips that only graphics drivers and their libraries count: family and revision (amdgpu_drm.h, amdgpu_asic.h),
// and the layout of tiles (GB_ADDR_CONFIG, as the drivers set it). Where ROCr can make images, it does not begin without.
#pragma once

#include <algorithm>
#include <iterator>

#include "service.h"

namespace luthier {

struct Chip {
  const char *target;
  uint32_t family, revision, tiles;
};

inline constexpr Chip kChips[] = {
    {"gfx906", 141, 0x28, 0x2A11'4042},
    {"gfx908", 141, 0x32, 0x2A11'4042},
    {"gfx90a", 141, 0x3C, 0x2A11'4042},
    {"gfx1030", 143, 0x28, 0x545},
};

// Zeros for one that is not known.
inline Chip chip_of(const Gpu &gpu) {
  const Chip *found = std::find_if(std::begin(kChips), std::end(kChips),
                                   [&](const Chip &chip) { return gpu.target == chip.target; });
  return found == std::end(kChips) ? Chip{} : *found;
}

}  // namespace luthier
