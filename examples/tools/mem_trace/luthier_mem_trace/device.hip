// Device side of the memory tracer: a record for each access of a wave with evenly spaced addresses, otherwise for each
// lane.
#include <hip/hip_runtime.h>
#include <luthier/channel.h>

MARK_LUTHIER_DEVICE_MODULE

/// One memory access by some lanes of a wave.
struct Access {
  uint64_t where;     // address of lane 0 in 48 bits, and above them its distance to lane 1 in `unit`s; see `kWhole`
  uint64_t lanes;     // those that access memory; 0: the wave, once
  uint32_t workgroup; // in the first dimension
  uint32_t site;      // the instruction's number | `kWhole`
};
LUTHIER_RECORD(Access, where, lanes, workgroup, site)

/// Flag of a site: `where` is only an address.
constexpr uint32_t kWhole = 1u << 31;

__device__ luthier::channel<Access> accesses;

namespace {

__device__ inline uint64_t of_lane(uint64_t value, uint32_t lane) {
  const uint32_t low = __builtin_amdgcn_readlane(static_cast<uint32_t>(value), lane);
  const uint32_t high = __builtin_amdgcn_readlane(static_cast<uint32_t>(value >> 32), lane);
  return static_cast<uint64_t>(high) << 32 | low;
}

/// Returns the lowest `bits` of a number, sign-extended.
__device__ inline int64_t lowest(int64_t value, unsigned bits) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) << (64 - bits)) >> (64 - bits);
}

/// Returns the inverse of an odd number modulo 2^32, by Newton's method from 5 correct bits.
__device__ inline uint32_t inverse(uint32_t odd) {
  uint32_t found = odd * 3 ^ 2;
  for (int turn = 0; turn < 3; ++turn)
    found *= 2 - odd * found;
  return found;
}

} // namespace

/// A vector instruction accesses memory, in every active lane.
///
/// @param unit binary logarithm of the unit of distances
LUTHIER_HOOK_ANNOTATE access(uint64_t address, uint32_t site, uint32_t unit) {
  const uint64_t lanes = __ballot(1);
  const uint32_t lane = __lane_id();
  // The distance is that of two adjacent lanes, or derived from the first two. It need not hold for others: every lane
  // compares it with its own address.
  const uint64_t pairs = lanes & lanes >> 1;
  const uint32_t first = __builtin_ctzll(pairs ? pairs : lanes);
  const uint64_t after = lanes >> first >> 1;
  const uint32_t apart = after ? __builtin_ctzll(after) + 1 : 1;
  const uint64_t there = of_lane(address, first);
  const uint32_t further = after ? of_lane(address, first + apart) - there : 0;
  const uint32_t twos = __builtin_ctz(apart);
  const int64_t step = static_cast<int32_t>(further * inverse(apart >> twos)) >> (twos + unit);
  const int64_t distance = step << unit;
  const int64_t base = there - distance * first;
  const bool even = __ballot(base + distance * static_cast<int64_t>(lane) != static_cast<int64_t>(address)) == 0 &&
                    step == lowest(step, 16) && base == lowest(base, 48);
  if (even && lane != static_cast<uint32_t>(__builtin_ctzll(lanes)))
    return;
  const uint32_t group = __builtin_amdgcn_workgroup_id_x();
  const uint64_t packed = static_cast<uint64_t>(step) << 48 | (static_cast<uint64_t>(base) & ((1ull << 48) - 1));
  accesses.push({even ? packed : address, even ? lanes : 1ull << lane, group, even ? site : site | kWhole});
}

/// A scalar instruction accesses memory, once for its wave.
LUTHIER_HOOK_ANNOTATE access_wave(uint64_t address, uint32_t site) {
  accesses.pushWave({address, 0, __builtin_amdgcn_workgroup_id_x(), site | kWhole});
}
