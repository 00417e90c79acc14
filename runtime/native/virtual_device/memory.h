// Memory that kernels may access: where it is, where devices see it, and which of them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ranges.h"

namespace luthier {

inline constexpr uint64_t kPageSize = 4096;

struct Allocation {
  uint64_t address = 0, size = 0;
  uint64_t gpu_address = 0;     // differs for registered memory, and for memory that only devices map
  std::vector<uint32_t> mapped; // nodes
  bool is_private = false;      // a device's own, which neither the host nor another process reads
  uint64_t fine = 0; // its kind of fine-grained memory, wire::kFineHost and the others; 0: it is coarse-grained
};

class Memory {
public:
  // `sizes`: bytes of each node's own memory; that of the host is not counted.
  explicit Memory(std::vector<uint64_t> sizes) : free_(std::move(sizes)), tables_(free_.size()) {}

  // Return the address of zeroed memory for a device's own use. Throws `Failure`.
  uint64_t allocate(uint64_t size, std::vector<uint32_t> nodes);
  // Give it back; do nothing for 0.
  void free(uint64_t address);

  // Add memory that is owned elsewhere; its address and the devices' address together identify it.
  void adopt(const Allocation &made);
  bool drop(uint64_t address, uint64_t gpu_address);
  bool set_mapped(uint64_t address, uint64_t gpu_address, std::vector<uint32_t> nodes);
  // Set the kind of fine-grained memory that it is; 0: none.
  void set_fine(uint64_t address, uint64_t gpu_address, uint64_t kind);
  // Return all fine-grained memory.
  std::shared_ptr<const FineRanges> fine_grained() const;

  // Another process may read it from now on.
  void share(uint64_t address, uint64_t gpu_address);
  // Return whether all memory there is a device's own, which only devices of this process read.
  bool is_private(uint64_t address) const;

  // Take `size` bytes of a node's own memory; return false if there are not enough.
  bool take(unsigned node, uint64_t size);
  void give_back(unsigned node, uint64_t size);
  // Return the bytes of a node's own memory that are left.
  uint64_t available(unsigned node) const;

  std::optional<Allocation> find(uint64_t address) const;
  std::shared_ptr<const RangeTable> table(unsigned node) const;
  // Return the same without what is between the allocations that the program made.
  std::shared_ptr<const RangeTable> exact_table(unsigned node) const;
  // Return where these bytes are on the host; null if the node may not access them all, or if they are in several
  // places.
  char *host(unsigned node, uint64_t address, uint64_t size) const { return table(node)->host(address, size); }

private:
  using Allocations = std::multimap<uint64_t, Allocation>;
  Allocations::iterator exactly(uint64_t address, uint64_t gpu_address);
  void changed();

  mutable std::mutex mutex_;
  Allocations allocations_;
  std::vector<uint64_t> free_;
  mutable std::vector<std::shared_ptr<const RangeTable>> tables_;
  struct Exact {
    std::shared_ptr<const RangeTable> of, table;
    uint64_t version = 0;
  };
  mutable std::vector<Exact> exact_ = std::vector<Exact>(tables_.size());
  mutable size_t longest_ = 0;
  mutable std::shared_ptr<const FineRanges> fine_;
  mutable uint64_t fine_version_ = 0; // of the program's memory
};

} // namespace luthier
