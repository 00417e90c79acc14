#pragma once
#include <luthier/luthier.h>

namespace extra {

/// `value` turned left by `distance` bits. `T` is `uint32_t` or `uint64_t`.
template <typename T> LUTHIER_INTRINSIC_ANNOTATE T rotate(T value, uint32_t distance) {
  return luthier::opaque<T>(value, distance);
}

namespace bits {
/// Lanes a wave of the kernel that the hook is in.
LUTHIER_INTRINSIC_ANNOTATE inline uint32_t wave_size() { return luthier::opaque<uint32_t>(); }
} // namespace bits

} // namespace extra
