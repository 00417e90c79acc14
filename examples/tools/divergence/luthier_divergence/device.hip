// Device side of the divergence tool: how many lanes are active, and where branches divide them.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// By kernel and number of active lanes: vector instructions that waves ran so.
__device__ uint64_t lanes[256][65];

/// By branch: times that waves came there, times that it was taken, times that the lanes were divided.
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

/// Notes whether some, but not all, of the lanes that come go on.
__device__ inline void divides(uint64_t come, uint64_t go_on, uint32_t site) {
  luthier::sAtomicAdd<uint64_t>(&branches[site][2], go_on != 0 && go_on != come);
}

/// What becomes of EXEC when the instruction behind the hook combines it with a mask.
enum Combination { And, AndNot, MaskAndNot, Xor, Saved, Vote };

__device__ inline void combine(uint64_t mask, uint32_t how, uint32_t site) {
  const uint64_t exec = __builtin_amdgcn_read_exec();
  switch (how) {
  case And:
    return divides(exec, exec & mask, site);
  case AndNot:
    return divides(exec, exec & ~mask, site);
  case MaskAndNot: // an else: the lanes that ran the other side come as well
    return divides(mask | exec, mask & ~exec, site);
  case Xor:
    return divides(exec, exec ^ mask, site);
  case Saved: // the mask is EXEC as it was
    return divides(mask, exec, site);
  case Vote: // the wave goes one way, whatever single lanes want
    return divides(exec, exec & mask, site);
  }
}

} // namespace

/// EXEC is about to be combined with a mask, and then a branch looks at it. Of 64 lanes.
LUTHIER_HOOK_ANNOTATE divide64(uint64_t mask, uint32_t how, uint32_t site) { combine(mask, how, site); }

/// The same of 32 lanes.
LUTHIER_HOOK_ANNOTATE divide32(uint32_t mask, uint32_t how, uint32_t site) { combine(mask, how, site); }
