// Device side of the bank conflict tool: the cycles that each LDS instruction of a wave takes.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// By site: accesses, active lanes, minimum cycles, actual cycles.
__device__ uint64_t accesses[16384][4];

/// A wave is about to access LDS at `offset` in every active lane.
///
/// LDS serves the lanes in phases, as many at once as it has banks for; a phase without active lanes takes a cycle, too.
/// In a phase each bank serves one dword a cycle, to all lanes that request it; other dwords of the bank wait for the
/// next cycle. Accesses are aligned to their size, so wide ones are treated as narrow ones with fewer, wider banks.
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
  const uint32_t at_once = banks < 32 ? banks : 32;
  const uint32_t phase = read128 ? (quad < 4 ? quad : (quad ^ 1) & 3) + (lane >> 5) * 4 : lane / at_once;
  const uint32_t cell = offset >> shift, bank = cell & (banks - 1);

  // Number of different cells requested from each lane's bank in the lane's phase, its own included.
  uint32_t wanted = 0;
  for (uint64_t left = active; left;) {
    const int leader = __builtin_ctzll(left);
    const uint32_t its_cell = __builtin_amdgcn_readlane(cell, leader);
    const bool with_it = phase == __builtin_amdgcn_readlane(phase, leader);
    left &= ~__ballot(with_it && cell == its_cell);
    wanted += with_it && bank == (its_cell & (banks - 1));
  }
  const uint64_t phases = __builtin_amdgcn_wavefrontsize() / at_once;
  uint64_t cycles = phases;
  for (uint64_t left = active; left;) {
    const bool now = phase == __builtin_amdgcn_readlane(phase, __builtin_ctzll(left));
    left &= ~__ballot(now);
    for (uint32_t most = 1; __ballot(now && wanted > most); ++most)
      ++cycles;
  }
  luthier::sAtomicAdd<uint64_t>(&accesses[site][0], 1);
  luthier::sAtomicAdd<uint64_t>(&accesses[site][1], __builtin_popcountll(active));
  luthier::sAtomicAdd<uint64_t>(&accesses[site][2], phases);
  luthier::sAtomicAdd<uint64_t>(&accesses[site][3], cycles);
}
