#include "grid.h"

namespace luthier {

using namespace layout;

Grid grid_of(Triple items, Triple block) {
  struct Stretch {
    uint32_t first, groups, items;
  };
  const auto along = [](uint32_t all, uint32_t size) {
    std::vector<Stretch> stretches;
    if (all / size)
      stretches.push_back({0, all / size, size});
    if (all % size)
      stretches.push_back({all / size, 1, all % size});
    return stretches;
  };
  const auto count = [](uint32_t all, uint32_t size) { return all / size + (all % size != 0); };
  Grid made{{}, {count(items.x, block.x), count(items.y, block.y), count(items.z, block.z)}};
  for (Stretch z : along(items.z, block.z))
    for (Stretch y : along(items.y, block.y))
      for (Stretch x : along(items.x, block.x))
        made.parts.push_back(
            {{x.first, y.first, z.first}, {x.groups, y.groups, z.groups}, {x.items, y.items, z.items}});
  return made;
}

uint64_t group_number(const char *group) {
  const auto *context = pointer<const char *>(pointer<const char *>(group, group::waves), wave::context);
  const auto *part = pointer<const PartMemory *>(context, context::launch); // `launch` is first in it
  const auto at = [part](Field field) { return get(part->launch, field); };
  const uint64_t own = get(group, group::number), wide = at(launch::grid_x), high = at(launch::grid_y);
  const uint64_t x = at(launch::first_x) + own % wide, y = at(launch::first_y) + own / wide % high;
  const uint64_t z = at(launch::first_z) + own / wide / high;
  return (z * part->whole.y + y) * part->whole.x + x;
}

} // namespace luthier
