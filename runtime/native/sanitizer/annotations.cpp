// What programs say of parts of their allocations, by luthier_annotate.h.
#include "blocks.h"
#include "listeners.h"
#include "sanitizer.h"

using namespace luthier;

namespace {

// Return whether accesses are compared with parts: with those that there are when a kernel runs, so wait for kernels
// that still use the memory.
bool checks_parts() {
  if (!luthier_checks_parts || !luthier_checks_parts())
    return false;
  Inside now;
  if (!loaded_library("libamdhip64").empty())
    next<int()>("hipDeviceSynchronize")();
  return true;
}

} // namespace

extern "C" {

void luthier_annotate_alloc_named(const void *address, size_t size, const char *name) {
  if (address && size && checks_parts())
    luthier_part_allocated(reinterpret_cast<uint64_t>(address), size, calls_here(), name);
}

void luthier_annotate_alloc(const void *address, size_t size) { luthier_annotate_alloc_named(address, size, nullptr); }

void luthier_annotate_free(const void *address) {
  if (address && checks_parts())
    luthier_part_freed(reinterpret_cast<uint64_t>(address), calls_here());
}
}
