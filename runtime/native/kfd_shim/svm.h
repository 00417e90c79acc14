// Shared virtual memory: the attributes of ranges of the process's own addresses, and which devices may access them.
// What they mean, and what there is where nobody has set any, is as in the kernel
// (drivers/gpu/drm/amd/amdkfd/kfd_svm.c). Nothing moves: all memory is the host's.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>

#include "memory.h"
#include "requests.h"

namespace luthier {

class SvmRanges {
public:
  explicit SvmRanges(Memory &memory) : memory_(memory) {}

  // Set or ask for attributes, whose values name devices by nodes, of whole pages. 0 or an error number, negative.
  int set(uint64_t start, uint64_t size, std::span<const kfd::SvmAttribute> wanted);
  int get(uint64_t start, uint64_t size, std::span<kfd::SvmAttribute> asked) const;
  // The ranges of this process, if any were ever set; a forked child has none.
  static SvmRanges *current();
  // Forget what was set of these addresses.
  void forget(uint64_t start, uint64_t size);
  // The same if `replace`, by which the process gives them up, does not return -1; return what it does. Nothing is set
  // meanwhile, since another thread may get these addresses at once.
  long replace(uint64_t start, uint64_t size, const std::function<long()> &replace);

private:
  struct Range {
    uint64_t end;
    uint32_t preferred = KFD_IOCTL_SVM_LOCATION_UNDEFINED, prefetched = KFD_IOCTL_SVM_LOCATION_UNDEFINED;
    uint32_t flags = KFD_IOCTL_SVM_FLAG_HOST_ACCESS | KFD_IOCTL_SVM_FLAG_COHERENT;
    uint32_t granularity = 9;                         // as a power of two of pages
    uint64_t accessible = 0, accessible_in_place = 0; // sets of nodes
  };
  using Ranges = std::map<uint64_t, Range>;

  static void apply(Range &range, const kfd::SvmAttribute &attribute);
  void drop(uint64_t start, uint64_t size);
  void split(uint64_t address);
  void make_known(uint64_t start, const Range &range, bool is_new);

  Memory &memory_;
  mutable std::mutex mutex_;
  Ranges ranges_; // by their beginnings
};

} // namespace luthier
