#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

namespace statistics {

/// Sum and maximum of what was seen.
template <typename T> struct Accumulator {
  T sum;
  T maximum;
};

__managed__ Accumulator<float> floats;
__managed__ Accumulator<uint64_t> integers;

template <typename T> __device__ T larger(T a, T b) { return a > b ? a : b; }

template <typename T> __device__ __noinline__ void add(Accumulator<T> *into, T value) {
  into->sum += value;
  into->maximum = larger(into->maximum, value);
}

} // namespace statistics

LUTHIER_HOOK_ANNOTATE see_float(float value) { statistics::add(&statistics::floats, value); }
LUTHIER_HOOK_ANNOTATE see_integer(uint64_t value) { statistics::add(&statistics::integers, value); }
