// Device side of the instruction counter: two hooks that add to one counter.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// Instructions executed so far.
__managed__ uint64_t counter = 0;

/// Counts one vector instruction.
///
/// @param wave_level true: one per wave; false: one per active lane
LUTHIER_HOOK_ANNOTATE count_vector(bool wave_level) {
  uint64_t executed = wave_level ? 1 : __builtin_popcountll(__builtin_amdgcn_read_exec());
  luthier::sAtomicAdd<uint64_t>(&counter, executed);
}

/// Counts one scalar instruction: a wave executes it once, whatever its lanes do.
LUTHIER_HOOK_ANNOTATE count_scalar() { luthier::sAtomicAdd<uint64_t>(&counter, 1); }
