// Device side of the divergence tool: active lanes, and divergent branches.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// Executed vector instructions by kernel and number of active lanes.
__device__ uint64_t lanes[256][65];

/// By branch: executions, times taken, times divergent.
__device__ uint64_t branches[16384][3];

/// A wave is about to run `count` vector instructions with the same EXEC.
LUTHIER_HOOK_ANNOTATE active(uint32_t kernel, uint32_t count) {
  luthier::sAtomicAdd<uint64_t>(&lanes[kernel][__builtin_popcountll(__builtin_amdgcn_read_exec())], count);
}

/// A wave is at a conditional branch.
LUTHIER_HOOK_ANNOTATE branch(bool taken, uint32_t site) {
  luthier::sAtomicAdd<uint64_t>(&branches[site][0], 1);
  luthier::sAtomicAdd<uint64_t>(&branches[site][1], taken);
}

namespace {

/// Records whether some, but not all, of the lanes continue.
__device__ inline void divides(uint64_t come, uint64_t go_on, uint32_t site) {
  luthier::sAtomicAdd<uint64_t>(&branches[site][2], go_on != 0 && go_on != come);
}

/// Returns EXEC after the instruction after the hook has combined it with a mask.
enum Combination { And, AndNot, MaskAndNot, Xor, Saved, Vote };

__device__ inline void combine(uint64_t mask, uint32_t how, uint32_t site) {
  const uint64_t exec = __builtin_amdgcn_read_exec();
  switch (how) {
  case And:
    return divides(exec, exec & mask, site);
  case AndNot:
    return divides(exec, exec & ~mask, site);
  case MaskAndNot: // an else: also reached by the lanes of the if
    return divides(mask | exec, mask & ~exec, site);
  case Xor:
    return divides(exec, exec ^ mask, site);
  case Saved: // the mask is the former EXEC
    return divides(mask, exec, site);
  case Vote: // the wave takes one direction, whatever single lanes want
    return divides(exec, exec & mask, site);
  }
}

} // namespace

/// EXEC is about to be combined with a mask, and then tested by a branch; for 64 lanes.
LUTHIER_HOOK_ANNOTATE divide64(uint64_t mask, uint32_t how, uint32_t site) { combine(mask, how, site); }

/// The same for 32 lanes.
LUTHIER_HOOK_ANNOTATE divide32(uint32_t mask, uint32_t how, uint32_t site) { combine(mask, how, site); }
