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
  Triple whole; // work-groups of the launch; these may be a subset
};

// Return the parts of a grid of `items` work-items: first the part with full work-groups, then those with the smaller
// work-groups at the ends of the grid.
Grid grid_of(Triple items, Triple block);

// A part of a launch: `launch`, which compiled code reads, and what only this library reads.
struct PartMemory {
  alignas(64) char launch[layout::launch::kSize] = {};
  Triple whole{};     // Grid::whole
  uint32_t waves = 0; // of a work-group
};

// Return the number in the launch of the work-group that a worker runs, by the address of its layout::group.
uint64_t group_number(const char *group);

} // namespace luthier
