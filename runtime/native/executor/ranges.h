// Addresses that a kernel may touch.
#pragma once

#include <vector>

#include "bytes.h"

namespace luthier {

// As compiled code searches them (layout.RANGE_SIZE): sorted, without overlaps, never changed. A table has at least as
// many rows as every one before it, since records remember a row from launch to launch.
struct RangeTable {
  struct Row {
    uint64_t address, size;
  };
  std::vector<Row> rows;
  std::string aliases;  // layout::alias
  uint64_t alias_count() const { return aliases.size() / layout::alias::kSize; }
  // Where these bytes are on the host; null if the kernel may not access them.
  char *host(uint64_t address, uint64_t size) const;
  bool holds(uint64_t address, uint64_t size) const { return host(address, size) != nullptr; }
};

}  // namespace luthier
