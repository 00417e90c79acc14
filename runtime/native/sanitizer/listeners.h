// The listeners for the program's memory: the virtual device and the tool library, if they are loaded before.
#pragma once

#include <cstdint>

#include "host_stack.h"

extern "C" {
// Functions of libluthier_kfd.so. The calls are those that allocate the memory.
void luthier_allocated(uint64_t address, uint64_t size, uint64_t reserved, luthier::CallTrace calls)
    __attribute__((weak));
void luthier_fresh(uint64_t address, uint64_t size) __attribute__((weak));
void luthier_fine_grained(uint64_t address) __attribute__((weak));
bool luthier_checks_parts() __attribute__((weak));
void luthier_part_allocated(uint64_t address, uint64_t size, luthier::CallTrace calls, const char *name)
    __attribute__((weak));
void luthier_part_freed(uint64_t address, luthier::CallTrace calls) __attribute__((weak));
void luthier_freed(uint64_t address, luthier::CallTrace calls) __attribute__((weak));
void luthier_forget(uint64_t address) __attribute__((weak));
void luthier_complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size, luthier::CallTrace calls)
    __attribute__((weak));
// Functions of libluthier_tools.so.
void luthier_tools_allocated(uint64_t address, uint64_t size, uint64_t reserved) __attribute__((weak));
void luthier_tools_freed(uint64_t address) __attribute__((weak));
void luthier_tools_forget(uint64_t address) __attribute__((weak));
void luthier_tools_complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size) __attribute__((weak));
}

namespace luthier::listeners {

inline bool any() { return luthier_allocated || luthier_tools_allocated; }

inline void allocated(uint64_t address, uint64_t size, uint64_t reserved, CallTrace calls) {
  if (luthier_allocated)
    luthier_allocated(address, size, reserved, calls);
  if (luthier_tools_allocated)
    luthier_tools_allocated(address, size, reserved);
}
inline void freed(uint64_t address, CallTrace calls) {
  if (luthier_freed)
    luthier_freed(address, calls);
  if (luthier_tools_freed)
    luthier_tools_freed(address);
}
inline void forget(uint64_t address) {
  if (luthier_forget)
    luthier_forget(address);
  if (luthier_tools_forget)
    luthier_tools_forget(address);
}
inline void complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size, CallTrace calls) {
  if (luthier_complain)
    luthier_complain(kind, address, base, size, calls);
  if (luthier_tools_complain)
    luthier_tools_complain(kind, address, base, size);
}

} // namespace luthier::listeners
