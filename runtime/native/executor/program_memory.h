// Memory that the program itself asked for, to the byte: pieces of what devices may access.
//
// The driver gives pages, and what is beyond an allocation's last byte is there on hardware, too. Where somebody tells
// of the allocations, what is between them is a hole: kernels reach it, and should not.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "call_site.h"
#include "ranges.h"

namespace luthier {

struct Extent {
  uint64_t address = 0, size = 0; // as the program asked for it
  uint64_t reserved = 0;          // bytes from `address` on that are nobody else's
  uint64_t number = 0;            // among all allocations, from 1 on
  bool freed = false;
  uint64_t module = 0, module_end = 0;        // of a variable: from where to where accesses may be meant for it
  CallTrace allocated_by = {}, freed_by = {}; // nothing where nobody tells

  bool has(uint64_t wanted) const { return wanted - address < size; }
  // Has a wire::Sighting be about it.
  template <typename Sighting> void put_into(Sighting &sighting) const {
    sighting.base = address;
    sighting.extent = size;
    sighting.allocation = number;
    sighting.is_variable = module != 0;
  }
};

class ProgramMemory {
public:
  // The one of this process.
  static ProgramMemory &get();

  void allocated(uint64_t address, uint64_t size, uint64_t reserved, const CallTrace &calls = {});
  // Marks an allocation as given back, while its memory is still there.
  void freed(uint64_t address, const CallTrace &calls = {});
  // Forgets an allocation, whose memory is no longer there.
  void forget(uint64_t address);

  // Takes the variables of a code object that is loaded at an address, in memory that ends at another one.
  void loaded(uint64_t module, uint64_t end, const std::vector<Extent> &variables);
  bool has_module(uint64_t module) const;
  // Forgets the variables of code objects in memory that is given back.
  void unloaded(uint64_t address, uint64_t size);

  // Return the extent that an address is in, else the one with the nearest end; nothing if there is none. What has no
  // bytes is none, and a variable counts near its code object only. If that is behind the address, `in_front` gets the
  // number of the one in front of it, if there is one.
  std::optional<Extent> nearest(uint64_t address, uint64_t *in_front = nullptr) const;
  // Return the extent that begins at an address; nothing if none does.
  std::optional<Extent> at(uint64_t address) const;
  // Return how often it has changed; 0 where nothing is known.
  uint64_t version() const;
  // Return whether somebody has told of allocations.
  bool knows_allocations() const;
  // Return what is left of a table without the holes; at least so many rows.
  RangeTable without_holes(const RangeTable &table, size_t rows) const;

private:
  mutable std::mutex mutex_;
  std::map<uint64_t, Extent> extents_;
  std::set<uint64_t> modules_; // where they begin
  uint64_t version_ = 0, number_ = 0;
  bool knows_allocations_ = false;
};

} // namespace luthier
