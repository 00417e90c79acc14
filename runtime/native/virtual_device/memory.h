// What kernels may touch: memory that was allocated or registered, and which GPUs it is mapped to.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ranges.h"

namespace luthier {

enum class Kind { kAllocated, kRegistered, kShared };

struct Allocation {
  uint64_t address = 0, size = 0;
  uint64_t gpu_address = 0;  // of registered memory another one: the runtime counts on that
  Kind kind = Kind::kAllocated;
  unsigned node = 0;
  uint32_t flags = 0;
  void *user_data = nullptr;
  std::vector<uint32_t> mapped;  // nodes
  bool executable = false;
  // What the host memory is given back as; 0 where it is not ours.
  uint64_t mapping = 0, mapping_size = 0;
  // Shared with other processes under this name; 0: not.
  uint64_t name = 0;
  // Bytes of the node's own memory that it takes.
  uint64_t taken = 0;
};

class Memory {
public:
  // `sizes`: bytes of each node's own memory; that of the host is not counted.
  explicit Memory(std::vector<uint64_t> sizes) : free_(std::move(sizes)), tables_(free_.size()) {}

  // Zeroed memory of the process; at `wanted` if that is not 0. `is_local`: it is the node's own, of which there is only
  // so much. Throws `Failure`.
  void *allocate(unsigned node, uint64_t size, uint32_t flags, uint64_t wanted = 0, bool is_local = false);
  // Memory behind a file, as another process shares it.
  void *attach(unsigned node, int fd, uint64_t size, uint64_t name);
  // Give it back; false if nothing begins there.
  bool free(uint64_t address);
  // The host's own memory; may overlap what is registered already.
  void add_registered(uint64_t address, uint64_t size, uint32_t flags);
  bool remove_registered(uint64_t address);
  // Makes it accessible to nodes, and to no others; the address at which they see it, or 0 if there is no such memory.
  // A part of an allocation maps all of it.
  uint64_t map(uint64_t address, const std::vector<uint32_t> &nodes);
  // Replaces the host memory of an allocation by a file of the same contents, to be shared; the file is the caller's.
  int make_file(uint64_t address, uint64_t size);
  void set_name(uint64_t address, uint64_t name);

  // Memory that somebody else keeps, which the device sees at `gpu_address`; both together name it. `take` has been asked
  // for what it takes.
  void adopt(const Allocation &made);
  // Takes so much of a node's own memory, or nothing and false.
  bool take(unsigned node, uint64_t size);
  void give_back(unsigned node, uint64_t size);
  // How much of a node's own memory is left, in bytes.
  uint64_t available(unsigned node) const;
  bool drop(uint64_t address, uint64_t gpu_address);
  bool set_mapped(uint64_t address, uint64_t gpu_address, std::vector<uint32_t> nodes);

  std::optional<Allocation> find(uint64_t address) const;
  bool set_user_data(uint64_t address, void *data);
  std::shared_ptr<const RangeTable> table(unsigned node) const;
  // Where these bytes are on the host; null if the node may not access them all.
  char *host(unsigned node, uint64_t address, uint64_t size) const { return table(node)->host(address, size); }

private:
  using Allocations = std::multimap<uint64_t, Allocation>;
  void erase(Allocations::iterator gone);
  Allocations::iterator at(uint64_t address);
  Allocations::iterator exactly(uint64_t address, uint64_t gpu_address);
  void changed();

  mutable std::mutex mutex_;
  Allocations allocations_;
  std::vector<uint64_t> free_;
  mutable std::vector<std::shared_ptr<const RangeTable>> tables_;
  mutable size_t longest_ = 0;
};

}  // namespace luthier
