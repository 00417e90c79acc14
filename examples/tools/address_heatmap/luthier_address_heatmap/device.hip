// Device side of the address heat map: accesses by page, in a hash table.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

constexpr uint32_t Slots = 1 << 16, Probes = 256;

/// Number of a page plus one; 0 if the slot is free.
__device__ unsigned long long pages[Slots];

/// Loads, stores and atomic operations of lanes that begin in the page.
__device__ uint64_t accesses[Slots][3];

/// Accesses to pages without a slot.
__device__ uint64_t left_out = 0;

/// A wave is about to access memory at `address` in every active lane.
///
/// @param shift a page has 1 << shift bytes
/// @param kind 0 load, 1 store, 2 atomic
LUTHIER_HOOK_ANNOTATE touch(uint64_t address, uint32_t shift, uint32_t kind) {
  const uint64_t page = address >> shift;
  for (uint64_t left = __ballot(1); left;) {
    const int leader = __builtin_ctzll(left);
    const uint64_t low = static_cast<uint32_t>(__builtin_amdgcn_readlane(static_cast<uint32_t>(page), leader));
    const uint64_t high = static_cast<uint32_t>(__builtin_amdgcn_readlane(static_cast<uint32_t>(page >> 32), leader));
    const uint64_t wanted = high << 32 | low;
    const uint64_t same = __ballot(page == wanted);
    left &= ~same;
    const uint64_t lanes = __builtin_popcountll(same);
    uint32_t slot = static_cast<uint32_t>(wanted * 0x9e3779b97f4a7c15ull >> 48);
    uint32_t probe = 0;
    for (; probe < Probes; ++probe, slot = (slot + 1) & (Slots - 1)) {
      uint64_t found = 0;
      if (static_cast<int>(__lane_id()) == leader)
        found = atomicCAS(&pages[slot], 0ull, static_cast<unsigned long long>(wanted + 1));
      const uint64_t found_low = static_cast<uint32_t>(__builtin_amdgcn_readlane(static_cast<uint32_t>(found), leader));
      const uint64_t found_high =
          static_cast<uint32_t>(__builtin_amdgcn_readlane(static_cast<uint32_t>(found >> 32), leader));
      const uint64_t there = found_high << 32 | found_low;
      if (there == 0 || there == wanted + 1)
        break;
    }
    if (probe < Probes)
      luthier::sAtomicAdd<uint64_t>(&accesses[slot][kind], lanes);
    else
      luthier::sAtomicAdd<uint64_t>(&left_out, lanes);
  }
}
