#include "ranges.h"

#include <algorithm>

namespace luthier {

char *RangeTable::host(uint64_t address, uint64_t size) const {
  const Piece part = piece(address);
  return size <= part.size ? part.host : nullptr;
}

RangeTable::Piece RangeTable::piece(uint64_t address) const {
  auto after = std::upper_bound(rows.begin(), rows.end(), address,
                                [](uint64_t wanted, const layout::Range &row) { return wanted < row.address; });
  if (after != rows.begin())
    if (const auto &row = *(after - 1); address - row.address < row.size)
      return {reinterpret_cast<char *>(address), row.size - (address - row.address)};
  for (const char *row = aliases.data(); row != aliases.data() + aliases.size(); row += layout::alias::kSize) {
    const uint64_t offset = address - get(row, layout::alias::address), size = get(row, layout::alias::size);
    if (offset < size)
      return {reinterpret_cast<char *>(get(row, layout::alias::host) + offset), size - offset};
  }
  return {};
}

} // namespace luthier
