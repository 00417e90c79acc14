// Who is told of the program's memory: the virtual device, and the tool library, where they are loaded before.
#pragma once

#include <cstdint>

extern "C" {
// Of libluthier_kfd.so.
void luthier_allocated(uint64_t address, uint64_t size, uint64_t reserved) __attribute__((weak));
void luthier_fresh(uint64_t address, uint64_t size) __attribute__((weak));
void luthier_freed(uint64_t address) __attribute__((weak));
void luthier_forget(uint64_t address) __attribute__((weak));
void luthier_complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size) __attribute__((weak));
// Of libluthier_tools.so.
void luthier_tools_allocated(uint64_t address, uint64_t size, uint64_t reserved) __attribute__((weak));
void luthier_tools_freed(uint64_t address) __attribute__((weak));
void luthier_tools_forget(uint64_t address) __attribute__((weak));
void luthier_tools_complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size) __attribute__((weak));
}

namespace luthier::listeners {

inline bool any() { return luthier_allocated || luthier_tools_allocated; }

template <typename... Types> void tell(void (*device)(Types...), void (*tools)(Types...), Types... arguments) {
  if (device)
    device(arguments...);
  if (tools)
    tools(arguments...);
}

inline void allocated(uint64_t address, uint64_t size, uint64_t reserved) {
  tell(luthier_allocated, luthier_tools_allocated, address, size, reserved);
}
inline void freed(uint64_t address) { tell(luthier_freed, luthier_tools_freed, address); }
inline void forget(uint64_t address) { tell(luthier_forget, luthier_tools_forget, address); }
inline void complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size) {
  tell(luthier_complain, luthier_tools_complain, kind, address, base, size);
}

} // namespace luthier::listeners
