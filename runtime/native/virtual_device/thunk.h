// The first door: the functions of libhsakmt (HSAKMT_1), as hsakmt.h declares them.
#pragma once

#include <cstdio>
#include <hsakmt.h>

#include "system.h"

namespace luthier {

// Calls `work` with the open system; nothing that is thrown gets out.
template <typename Work> HSAKMT_STATUS guarded(Work work) noexcept {
  System *system = System::current();
  if (!system)
    return HSAKMT_STATUS_KERNEL_IO_CHANNEL_NOT_OPENED;
  try {
    return work(*system);
  } catch (const Failure &problem) {
    std::fprintf(stderr, "luthier: %s\n", problem.what());
    return HSAKMT_STATUS_ERROR;
  } catch (...) {
    return HSAKMT_STATUS_NO_MEMORY;
  }
}

inline uint64_t number(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace luthier
