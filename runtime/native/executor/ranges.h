// Addresses that a kernel may touch.
#pragma once

#include <vector>

#include "bytes.h"

namespace luthier {

// Ranges as compiled code searches them: sorted, without overlaps, immutable. A table has at least as many rows as
// every earlier one, because records remember a row from launch to launch.
struct RangeTable {
  std::vector<layout::Range> rows;
  std::string aliases; // layout::alias
  uint64_t alias_count() const { return aliases.size() / layout::alias::kSize; }
  // Return where these bytes are on the host; null if the kernel may not access them, or if they are in several places.
  char *host(uint64_t address, uint64_t size) const;
  // Return where the bytes from an address on are on the host, and the number of contiguous ones: 0 if the kernel may
  // not access them.
  struct Piece {
    char *host = nullptr;
    uint64_t size = 0;
  };
  Piece piece(uint64_t address) const;
  bool holds(uint64_t address, uint64_t size) const { return host(address, size) != nullptr; }
};

// Fine-grained memory, at addresses of the host; `kind`: wire::kFineHost and the others.
struct FineRange {
  uint64_t address, size, kind;
};
using FineRanges = std::vector<FineRange>; // by addresses, without overlaps

} // namespace luthier
