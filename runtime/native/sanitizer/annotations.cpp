// What programs say of parts of their allocations, by luthier_annotate.h.
#include "blocks.h"
#include "listeners.h"
#include "sanitizer.h"

using namespace luthier;

namespace {

// Wait for kernels that still use the memory: it is compared with the parts that there are when a kernel runs.
void wait_for_device() {
  Inside now;
  if (!loaded_library("libamdhip64").empty())
    next<int()>("hipDeviceSynchronize")();
}

} // namespace

extern "C" {

void luthier_annotate_alloc(const void *address, size_t size) {
  if (!luthier_part_allocated || !address || !size)
    return;
  wait_for_device();
  luthier_part_allocated(reinterpret_cast<uint64_t>(address), size, stack_here());
}

void luthier_annotate_free(const void *address) {
  if (!luthier_part_freed || !address)
    return;
  wait_for_device();
  luthier_part_freed(reinterpret_cast<uint64_t>(address), stack_here());
}
}
