//===- luthier/waves.h - a wave's place in the launch, and its addresses ---===//
//
// Part of Luthier, under the Apache License v2.0.
//
// Helpers of hooks that tell waves apart, or that record the addresses of a wave's lanes.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_WAVES_H
#define LUTHIER_WAVES_H

#include <luthier/luthier.h>

namespace luthier {

/// The start of the dispatch packet (HSA specification, "kernel dispatch packet").
struct DispatchPacket {
  uint16_t header, setup, size[3], reserved;
  uint32_t grid[3];
};

/// Returns the packet that launched the kernel.
LUTHIER_INLINE const DispatchPacket &dispatchPacket() {
  return *static_cast<const DispatchPacket *>((const void *)__builtin_amdgcn_dispatch_ptr());
}

/// Returns the wave's number in its work-group, as a scalar, so that dependent values are computed once per wave.
///
/// @param width lanes of a wave
LUTHIER_INLINE uint32_t waveNumber(uint32_t x, uint32_t y, uint32_t z, uint32_t width) {
  const DispatchPacket &launch = dispatchPacket();
  return __builtin_amdgcn_readfirstlane((x + launch.size[0] * (y + launch.size[1] * z)) / width);
}

/// What a lane records of the addresses of its wave: nothing, an address for all active lanes, or its own address.
struct WaveAddress {
  uint64_t where; ///< Address of lane 0 in 48 bits, and above them the distance to lane 1 in units; or an address.
  uint64_t lanes; ///< Lanes that the record is about.
  bool isEven;    ///< The addresses of all active lanes are evenly spaced.
  bool records;   ///< This lane has something to record.
};

namespace detail {

LUTHIER_INLINE uint64_t ofLane(uint64_t value, uint32_t lane) {
  const uint32_t low = __builtin_amdgcn_readlane(static_cast<uint32_t>(value), lane);
  const uint32_t high = __builtin_amdgcn_readlane(static_cast<uint32_t>(value >> 32), lane);
  return static_cast<uint64_t>(high) << 32 | low;
}

/// Returns the lowest `bits` of a number, sign-extended.
LUTHIER_INLINE int64_t lowest(int64_t value, unsigned bits) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) << (64 - bits)) >> (64 - bits);
}

/// Returns the inverse of an odd number modulo 2^32, by Newton's method from 5 correct bits.
LUTHIER_INLINE uint32_t inverse(uint32_t odd) {
  uint32_t result = odd * 3 ^ 2;
  for (int turn = 0; turn < 3; ++turn)
    result *= 2 - odd * result;
  return result;
}

} // namespace detail

/// Returns what the lane records of the addresses of its wave.
///
/// @param unit binary logarithm of the unit of distances
LUTHIER_INLINE WaveAddress waveAddress(uint64_t address, uint32_t unit) {
  const uint64_t lanes = __ballot(1);
  const uint32_t lane = __lane_id();
  // The distance is that of two adjacent lanes, or derived from the first two. It need not hold for others: every lane
  // compares it with its own address.
  const uint64_t pairs = lanes & lanes >> 1;
  const uint32_t first = __builtin_ctzll(pairs ? pairs : lanes);
  const uint64_t after = lanes >> first >> 1;
  const uint32_t apart = after ? __builtin_ctzll(after) + 1 : 1;
  const uint64_t there = detail::ofLane(address, first);
  const uint32_t further = after ? detail::ofLane(address, first + apart) - there : 0;
  const uint32_t twos = __builtin_ctz(apart);
  const int64_t step = static_cast<int32_t>(further * detail::inverse(apart >> twos)) >> (twos + unit);
  const int64_t distance = step << unit;
  const int64_t base = there - distance * first;
  const bool even = __ballot(base + distance * static_cast<int64_t>(lane) != static_cast<int64_t>(address)) == 0 &&
                    step == detail::lowest(step, 16) && base == detail::lowest(base, 48);
  const uint64_t packed = static_cast<uint64_t>(step) << 48 | (static_cast<uint64_t>(base) & ((1ull << 48) - 1));
  const bool isFirst = lane == static_cast<uint32_t>(__builtin_ctzll(lanes));
  return {even ? packed : address, even ? lanes : 1ull << lane, even, !even || isFirst};
}

} // namespace luthier

#endif // LUTHIER_WAVES_H
