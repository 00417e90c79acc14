// Device side of the coalescing tool: the cache lines that each request of a wave touches.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// By site: requests, active lanes, cache lines.
__device__ uint64_t requests[16384][3];

namespace {

/// Returns the value of one lane's register, in all lanes.
__device__ inline uint64_t ofLane(uint64_t value, int lane) {
  const uint32_t low = __builtin_amdgcn_readlane(static_cast<uint32_t>(value), lane);
  const uint32_t high = __builtin_amdgcn_readlane(static_cast<uint32_t>(value >> 32), lane);
  return static_cast<uint64_t>(high) << 32 | low;
}

} // namespace

/// A wave is about to access `size` bytes at `address` in every active lane.
///
/// @param site number of the instruction
/// @param shift a cache line has 1 << shift bytes, at least as many as an access
LUTHIER_HOOK_ANNOTATE request(uint64_t address, uint32_t site, uint32_t size, uint32_t shift) {
  const uint64_t active = __ballot(1);
  if (active == 0)
    return;
  const uint64_t first = address >> shift, last = (address + size - 1) >> shift;
  uint64_t firsts = active, lasts = __ballot(last != first), lines = 0;
  while (firsts | lasts) {
    const uint64_t line = firsts ? ofLane(first, __builtin_ctzll(firsts)) : ofLane(last, __builtin_ctzll(lasts));
    firsts &= ~__ballot(first == line);
    lasts &= ~__ballot(last == line);
    ++lines;
  }
  luthier::sAtomicAdd<uint64_t>(&requests[site][0], 1);
  luthier::sAtomicAdd<uint64_t>(&requests[site][1], __builtin_popcountll(active));
  luthier::sAtomicAdd<uint64_t>(&requests[site][2], lines);
}
