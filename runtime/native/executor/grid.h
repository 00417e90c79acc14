// A grid of work-groups: parts whose work-groups have one size, and the numbers of work-groups.
#pragma once

#include <vector>

#include "bytes.h"

namespace luthier {

struct Triple {
  uint32_t x, y, z;
  uint64_t product() const { return uint64_t{x} * y * z; }
  bool operator==(const Triple &) const = default;
};

struct GridPart {
  Triple first, groups, items; // the id of the first work-group, how many, and the work-items of each
};

struct Grid {
  std::vector<GridPart> parts;
  Triple whole; // work-groups of the launch, of which these may be some
};

// Return the parts of a grid of so many work-items: first that of the whole work-groups, then those of the smaller
// work-groups at its ends.
Grid grid_of(Triple items, Triple block);

// Memory that compiled code reads of a part of a launch, and what it does not read.
struct PartMemory {
  alignas(64) char launch[layout::launch::kSize] = {};
  Triple whole{};     // Grid::whole
  uint32_t waves = 0; // of a work-group
};

// Return the number in the launch of the work-group that a worker runs, by the address of its layout::group.
uint64_t group_number(const char *group);

} // namespace luthier
