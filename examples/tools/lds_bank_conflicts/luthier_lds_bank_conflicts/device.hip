// Device side of the bank conflict tool: the cycles that each LDS instruction of a wave takes.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// By site: accesses, active lanes, minimum cycles, actual cycles.
__device__ uint64_t accesses[16384][4];

namespace {

/// Returns whether the lanes of each half of the wave request cells so near to that of its first active lane, and
/// behind it, that different cells are in different banks. Most accesses are like this, and the test is cheap.
__device__ inline bool areNear(uint32_t cell, uint64_t active, uint32_t lane, uint32_t banks) {
  const uint32_t low = active, high = active >> 32;
  const uint32_t first = __builtin_amdgcn_readlane(cell, low ? __builtin_ctz(low) : 0);
  const uint32_t first_high = __builtin_amdgcn_readlane(cell, high ? 32 + __builtin_ctz(high) : 0);
  return __ballot(cell - (lane < 32 ? first : first_high) >= banks) == 0;
}

} // namespace

/// A wave is about to access LDS at `offset` in every active lane.
///
/// LDS serves the lanes in phases, as many at once as it has banks for; a phase without active lanes takes a cycle,
/// too. In a phase each bank serves one dword a cycle, to all lanes that request it; other dwords of the bank wait for
/// the next cycle. Accesses are aligned to their size, so wide ones are treated as narrow ones with fewer, wider banks.
///
/// @param site number of the instruction
/// @param shift an access has 1 << shift bytes, at least those of a bank
/// @param banks banks of that size
/// @param read128 the lanes of a phase are those of a 128-bit read (see the README)
LUTHIER_HOOK_ANNOTATE access(uint32_t offset, uint32_t site, uint32_t shift, uint32_t banks, bool read128) {
  const uint64_t active = __ballot(1);
  if (active == 0)
    return;
  const uint32_t lane = __lane_id(), quad = lane >> 2 & 7;
  const uint32_t at_once_shift = banks < 32 ? __builtin_ctz(banks) : 5;
  const uint32_t phases = __builtin_amdgcn_wavefrontsize() >> at_once_shift;
  const uint32_t phase = read128 ? (quad < 4 ? quad : (quad ^ 1) & 3) + (lane >> 5) * 4 : lane >> at_once_shift;
  const uint32_t cell = offset >> shift, server = phase * banks + (cell & (banks - 1));

  uint64_t cycles = phases, waiting = areNear(cell, active, lane, banks) ? 0 : active;
  // The lanes that the same bank serves in the same phase, this lane included.
  uint64_t peers = active;
  for (uint32_t bit = 1; waiting && bit < phases * banks; bit <<= 1) {
    const uint64_t with_bit = __ballot(server & bit);
    peers &= server & bit ? with_bit : ~with_bit;
  }
  // In each cycle of its phase, a bank serves its first waiting lane and all that request the same cell. Every phase
  // takes the first cycle; only those with waiting lanes take another.
  while (waiting) {
    const uint32_t served = __builtin_amdgcn_ds_bpermute(__builtin_ctzll(peers & waiting) << 2, cell);
    waiting &= ~__ballot(cell == served);
    for (uint64_t left = waiting; left; ++cycles)
      left &= ~__ballot(phase == __builtin_amdgcn_readlane(phase, __builtin_ctzll(left)));
  }
  luthier::sAtomicAdd<uint64_t>(&accesses[site][0], 1);
  luthier::sAtomicAdd<uint64_t>(&accesses[site][1], __builtin_popcountll(active));
  luthier::sAtomicAdd<uint64_t>(&accesses[site][2], phases);
  luthier::sAtomicAdd<uint64_t>(&accesses[site][3], cycles);
}
