// What the memory accesses of a launch cost, by record: cache lines, requests to L2 and memory, cycles of LDS.
#pragma once

#include <cstdint>
#include <vector>

#include "arena.h"
#include "observer.h"

namespace luthier {

// Lines that a set-associative cache holds; in each set the least recently used line is replaced.
class CacheLines {
public:
  enum Touch { kMiss, kHit, kHitOfOthers };
  explicit CacheLines(uint64_t lines);
  // Return whether the cache holds a line, which it then holds, and whether only other users touched it until now.
  Touch touch(uint64_t line, unsigned user = 0);
  void clear();

private:
  struct Line {
    uint64_t next;  // after its number; 0: none, so that memory of sets that are never used is never touched
    uint64_t users; // a bit for each
  };
  uint64_t ways_, sets_;
  Arena memory_;
  Line *lines_; // of each set, the most recently used first
};

class AccessCosts final : public Observer {
public:
  struct Row {
    uint64_t record, accesses, lanes, lines, l2, memory, lds, scratch, quads, shared;
    // Bytes outside LDS and private memory are in [first, end); equal: there are none.
    uint64_t first, end;
  };
  // `model` is a layout::COST_MODEL, `plan` that of the kernel.
  AccessCosts(const char *plan, const char *model);
  bool wants_accesses() const override { return true; }
  void observe(const Instruction &instruction, const char *access, uint32_t event) override;
  // Of records that have accessed memory, in the order of their first accesses.
  const std::vector<Row> &rows() const { return rows_; }

private:
  Row &row_of(uint64_t record);
  // Add the lines of `size` bytes from `address`, if they are new.
  void add(std::vector<uint64_t> &lines, uint64_t address, uint64_t size, uint64_t line) const;
  void through_caches(Row &row, CacheLines &cache, unsigned use, uint64_t line, unsigned wave);
  // Return the quads of lanes; of those whose bytes are apart, the lanes.
  uint64_t quads(uint64_t lanes, uint64_t size) const;
  uint64_t lds_cycles(uint64_t lanes, uint64_t size, bool stores) const;

  const char *plan_;
  uint64_t line_, store_line_, scalar_line_, l2_line_, banks_, store_banks_;
  bool mixed_;
  CacheLines vector_, scalar_, l2_;
  CacheLines written_; // of L2, those that have changed
  uint64_t group_ = ~uint64_t{0};
  std::vector<Row> rows_;
  std::vector<uint32_t> places_; // by record, one more than the index of its row; 0: none
  std::vector<uint64_t> touched_;
  uint64_t addresses_[64] = {};
};

} // namespace luthier
