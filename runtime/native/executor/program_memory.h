// Memory that the program itself allocated, to the byte: parts of what devices may access.
//
// The driver allocates pages, so memory beyond an allocation's last byte is accessible, as on hardware. If allocations
// are reported, the memory between them is a hole: kernels can access it, but must not.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "host_stack.h"
#include "ranges.h"

namespace luthier {

struct Extent {
  uint64_t address = 0, size = 0; // as the program asked for it
  uint64_t reserved = 0;          // bytes from `address` on that no other allocation uses
  uint64_t number = 0;            // among all allocations, from 1 on
  bool freed = false;
  uint64_t module = 0, module_end = 0; // of a variable: from where to where accesses may be meant for it
  CallTrace allocated_by = nullptr, freed_by = nullptr; // null if not reported
  const std::string *name = nullptr;                    // of a part; null: none
  bool is_fine_grained = false;                         // the program has asked for that

  bool has(uint64_t wanted) const { return wanted - address < size; }
  // Describe it in a wire::Sighting.
  template <typename Sighting> void put_into(Sighting &sighting) const {
    sighting.base = address;
    sighting.extent = size;
    sighting.allocation = number;
    sighting.is_variable = module != 0;
  }
};

class ProgramMemory {
public:
  // Return the memory of this process.
  static ProgramMemory &get();

  void allocated(uint64_t address, uint64_t size, uint64_t reserved, CallTrace calls = nullptr);
  // Add a part of an allocation, of which from now on only live parts may be accessed.
  enum class Division { kDone, kNoAllocation, kOverlap };
  // Nothing is added if no live allocation contains the part, or it overlaps a live one.
  Division divided(uint64_t address, uint64_t size, CallTrace calls, std::string_view name = {});
  // Mark an allocation of a device's own memory as fine-grained.
  void fine_grained(uint64_t address);
  // Return the allocations that are marked so.
  FineRanges fine_grained() const;
  // Mark an allocation as freed, while its memory still exists.
  void freed(uint64_t address, CallTrace calls = nullptr);
  // Mark a part as freed.
  void part_freed(uint64_t address, CallTrace calls);
  // Forget an allocation, whose memory no longer exists, and its parts. Return the number of its bytes, with those that
  // no other allocation uses; 0 if it is not known.
  uint64_t forget(uint64_t address);

  // Add the variables of a code object that is loaded at an address, in memory that ends at another one.
  void loaded(uint64_t module, uint64_t end, const std::vector<Extent> &variables);
  bool has_module(uint64_t module) const;
  // Forget the variables of code objects in memory that is freed.
  void unloaded(uint64_t address, uint64_t size);

  // Return the extent that contains an address, else the one with the nearest end; nothing if there is none. Empty
  // extents do not count, and a variable counts only near its code object. If the result is behind the address,
  // `in_front` gets the number of the extent in front of the address, if there is one.
  std::optional<Extent> nearest(uint64_t address, uint64_t *in_front = nullptr) const;
  // Return the extent that begins at an address; nothing if none does. Of an allocation and its first part, return the
  // one with that size, else the part.
  std::optional<Extent> at(uint64_t address, uint64_t size) const;
  // Return the part, live or freed, that contains an address; nothing if none does.
  std::optional<Extent> part_around(uint64_t address) const;
  // Return how often it has changed; 0 where nothing is known.
  uint64_t version() const;
  // Return whether allocations are reported.
  bool knows_allocations() const;
  // Return a table without the holes, with at least `rows` rows.
  RangeTable without_holes(const RangeTable &table, size_t rows) const;

private:
  void unite(uint64_t address);

  mutable std::mutex mutex_;
  std::map<uint64_t, Extent> extents_;
  std::map<uint64_t, Extent> wholes_; // allocations whose parts are in `extents_`
  std::set<std::string, std::less<>> names_;
  std::set<uint64_t> modules_; // where they begin
  uint64_t version_ = 0, number_ = 0;
  bool knows_allocations_ = false;
};

} // namespace luthier
