#include "ranges.h"

#include <algorithm>

namespace luthier {

char *RangeTable::host(uint64_t address, uint64_t size) const {
  const auto covers = [&](uint64_t start, uint64_t length) {
    return address - start <= length && size <= length - (address - start);
  };
  auto after = std::upper_bound(rows.begin(), rows.end(), address,
                                [](uint64_t wanted, const Row &row) { return wanted < row.address; });
  if (after != rows.begin() && covers((after - 1)->address, (after - 1)->size))
    return reinterpret_cast<char *>(address);
  for (const char *row = aliases.data(); row != aliases.data() + aliases.size(); row += layout::alias::kSize)
    if (const uint64_t start = get(row, layout::alias::address); covers(start, get(row, layout::alias::size)))
      return reinterpret_cast<char *>(get(row, layout::alias::host) + (address - start));
  return nullptr;
}

}  // namespace luthier
