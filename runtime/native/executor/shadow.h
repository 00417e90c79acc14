// Shadow of memory: for each dword, or each byte where somebody uses parts of dwords, who touched it last.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace luthier {

// An access: the segment of a wave that it is in (ordering.h), 0 for none; the record and the lane that did it.
struct Touch {
  uint32_t segment = 0, place = 0;
  static constexpr unsigned kLaneBits = 6;
  uint32_t record() const { return place >> kLaneBits; }
  uint32_t lane() const { return place & ((1u << kLaneBits) - 1); }
};

struct Cell {
  Touch write, atomic; // the last ones
  // The last read; the last one by another wave of the same work-group; the last one by another work-group.
  Touch read, read_by_other, read_elsewhere;
};

class Shadow {
public:
  // Calls `each(cell, address, bytes)` for the cells of those bytes.
  template <typename Each> void visit(uint64_t address, uint64_t size, Each each) {
    for (const uint64_t end = address + size; address < end;) {
      const uint64_t part = std::min(end, (address | (kPage - 1)) + 1) - address;
      Page &page = find(address);
      const uint64_t offset = address & (kPage - 1);
      if (!page.bytes && (offset | part) % 4)
        split(page);
      const uint64_t step = page.bytes ? 1 : 4;
      Cell *cells = (page.bytes ? page.bytes : page.dwords).get() + offset / step;
      for (uint64_t at = 0; at < part; at += step)
        each(cells[at / step], address + at, step);
      address += part;
    }
  }

private:
  static constexpr uint64_t kPage = 4096;
  struct Page {
    std::unique_ptr<Cell[]> dwords, bytes; // one of them
  };
  Page &find(uint64_t address);
  static void split(Page &page);

  std::unordered_map<uint64_t, Page> pages_;
  uint64_t last_ = ~uint64_t{0}; // number of the page that was found last
  Page *found_ = nullptr;
};

} // namespace luthier
