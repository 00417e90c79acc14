// Fields of the structures that Python, compiled code and this library share.
#pragma once

#include <cstring>
#include <string>

#include "agreement.h"
#include "failure.h"

namespace luthier {

inline uint64_t get(const void *base, layout::Field field) {
  uint64_t value = 0;
  std::memcpy(&value, static_cast<const char *>(base) + field.offset, field.size);
  return value;
}

inline void put(void *base, layout::Field field, uint64_t value) {
  std::memcpy(static_cast<char *>(base) + field.offset, &value, field.size);
}

inline void put(void *base, layout::Field field, const void *pointer) {
  put(base, field, reinterpret_cast<uint64_t>(pointer));
}

template <typename T> T pointer(const void *base, layout::Field field) { return reinterpret_cast<T>(get(base, field)); }

inline uint64_t round_up(uint64_t value, uint64_t granule) { return (value + granule - 1) / granule * granule; }

} // namespace luthier
