// OpenMP's functions that allocate and free memory of a device, before those of its runtime.
#include "blocks.h"
#include "listeners.h"
#include "sanitizer.h"

using namespace luthier;

extern "C" {

void *omp_target_alloc(size_t size, int device) {
  auto *own = next<void *(size_t, int)>("omp_target_alloc", kOpenMpLibrary);
  if (inside || !listeners::any() || !size || size > SIZE_MAX - kZone)
    return own(size, device);
  Inside now;
  // Runtimes allocate parts of larger memory.
  return allocate_with_zone({size, Kind::kOpenMp, static_cast<uint64_t>(device), true, calls_here()}, 1,
                            [&](size_t room) { return own(room, device); });
}

void omp_target_free(void *address, int device) {
  if (!inside && listeners::any() && address && (free_later(address) || is_wrong(address)))
    return;
  next<void(void *, int)>("omp_target_free", kOpenMpLibrary)(address, device);
}
}
