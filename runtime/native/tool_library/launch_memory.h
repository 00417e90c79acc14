// The memory that a launch may access, for captures: what ROCr has allocated and the launch's arguments and code object
// lead to.
#pragma once

#include <map>
#include <unordered_set>

#include "agreement.h"
#include "runtime.h"

namespace luthier {

// Where the search for the memory of a launch begins.
struct LaunchRoots {
  uint64_t kernarg = 0, arguments = 0; // address and bytes
  uint64_t code = 0;                   // address in its code object
  uint64_t queue = 0;
};

class LaunchMemory {
public:
  // Bytes of a queue's structure that kernels can read (amd_queue_t).
  static constexpr uint64_t kQueueBytes = 256;

  // The device's; `most`: bytes that there may be. Throws `Failure`, as all functions do.
  LaunchMemory(Runtime &runtime, hsa_agent_t device, uint64_t most);
  ~LaunchMemory();
  LaunchMemory(const LaunchMemory &) = delete;

  // Find the memory, and read it into the file. Follow whatever looks like an address in it.
  void gather(const LaunchRoots &roots);
  // Read it again.
  void read();

  int file() const { return fd_; }
  wire::Rows<wire::MemoryRange> ranges() const;

private:
  struct Place {
    uint64_t size, offset;
    const void *host; // where the processor has it; null if that must ask ROCr for a copy
  };
  using Places = std::map<uint64_t, Place>; // by address

  using Mapping = std::pair<uint64_t, uint64_t>; // begin and end

  void find_mappings();
  const Mapping *mapping_of(uint64_t address) const;
  void add_host(uint64_t address, uint64_t size);
  void follow(uint64_t address);
  bool follow_allocation(uint64_t address);
  bool follow_shared(uint64_t address, const Mapping &mapping);
  bool is_shared(uint64_t address, uint64_t size);
  void scan(uint64_t address, Place place);
  void add(uint64_t address, uint64_t size, const void *host);
  void copy(uint64_t address, const Place &place);

  Runtime &runtime_;
  const hsa_agent_t device_;
  const uint64_t most_;
  int fd_ = -1;
  char *contents_ = nullptr;
  uint64_t used_ = 0;
  Places places_;
  std::vector<uint64_t> left_;             // begins of ranges that have not been scanned
  std::vector<Mapping> mappings_;          // of this process, in order
  std::unordered_set<uint64_t> elsewhere_; // pages that ROCr knows nothing of
};

} // namespace luthier
