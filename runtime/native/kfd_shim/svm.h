// Shared virtual memory: the attributes of ranges of the process's own addresses, and which devices may access them.
// Meanings and defaults are those of the kernel (drivers/gpu/drm/amd/amdkfd/kfd_svm.c). Nothing migrates: all memory is
// the host's.
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

  // Set or get attributes of whole pages; their values name devices by nodes. Return 0 or a negative error number.
  int set(uint64_t start, uint64_t size, std::span<const kfd::SvmAttribute> wanted);
  int get(uint64_t start, uint64_t size, std::span<kfd::SvmAttribute> asked) const;
  // Return the ranges of this process, if any were ever set; a forked child has none.
  static SvmRanges *current();
  // Forget the attributes of these addresses.
  void forget(uint64_t start, uint64_t size);
  // Call `replace`, by which the process unmaps them, forget the attributes unless it returns -1, and return its
  // result. Attributes are locked meanwhile, because another thread may get these addresses at once.
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
