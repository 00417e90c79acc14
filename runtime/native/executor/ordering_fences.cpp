// Fences: when stores are complete, and which caches may still hold what was there before.
//
// Before an atomic that releases, a wave waits until its stores are complete, after L2 is written back where there are
// several; after one that acquires, it invalidates its caches (LLVM AMDGPUUsage, "Memory Model"). Waves of a work-group
// have caches of their own only in some modes. Waves at a barrier count as having waited for each other, as compilers
// insert what the barrier needs; a fence of one of them then counts for all.
#include "ordering.h"

#include "agreement.h"

namespace luthier {

using namespace layout;

bool Ordering::fence(GroupOrder &group, WaveOrder &wave, unsigned parts) {
  meet(group, wave);
  if (parts & FENCE_NEAR)
    wave.fenced.near = wave.acquired;
  if (parts & FENCE_FAR)
    wave.fenced.far = wave.acquired;
  if (parts & (FENCE_NEAR | FENCE_FAR)) // for waves to which it hands on what it knows, too
    group.invalidated.join({fences_ & FENCES_APART ? 0 : wave.fenced.near, wave.fenced.far});
  wave.written_back |= (parts & FENCE_WRITES_BACK) != 0;
  if (!(parts & FENCE_WAITS) || !fences_ || (fences_ & FENCES_WRITE_BACK && !wave.written_back))
    return !group.incomplete.empty();
  complete(group, wave);
  return false;
}

// The stores of a wave, and those that happened before in its work-group, are complete.
void Ordering::complete(GroupOrder &group, WaveOrder &wave) {
  const uint32_t now = clock_ + 1;
  const auto left = std::remove_if(group.incomplete.begin(), group.incomplete.end(), [&](uint32_t segment) {
    const bool done = before({segment, 0}, group, wave);
    if (done)
      segments_[segment].complete = now;
    return done;
  });
  if (left == group.incomplete.end())
    return;
  group.incomplete.erase(left, group.incomplete.end());
  clock_ = now;
  wave.segment = 0;
}

Lack Ordering::lack(const Segment &store, const GroupOrder &group, const WaveOrder &wave, bool cached) const {
  const bool apart = store.group != group.id;
  if (!apart && (!(fences_ & FENCES_APART) || store.wave == wave.index || store.barrier <= wave.waits))
    return Lack::kNothing;
  Fenced fenced = wave.fenced;
  fenced.join(group.invalidated);
  if (store.complete > fenced.released)
    return Lack::kRelease;
  if (store.time < (apart ? std::min(fenced.near, fenced.far) : fenced.near))
    return Lack::kNothing;
  return store.time < fenced.locked || (apart && cached) ? Lack::kAcquire : Lack::kNothing;
}

} // namespace luthier
