// What bench_tool_runs.py runs under tools: a sort in LDS, and a Fourier transform in registers. Checks its result.
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

constexpr unsigned kItems = 256, kMost = 4096, kRadix = 32;

// Bitonic: each work-group sorts `n` numbers of its own.
__global__ void sort(unsigned *data, unsigned n) {
  __shared__ unsigned keys[kMost];
  data += blockIdx.x * n;
  for (unsigned at = threadIdx.x; at < n; at += kItems)
    keys[at] = data[at];
  for (unsigned size = 2; size <= n; size *= 2)
    for (unsigned stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (unsigned pair = threadIdx.x; pair < n / 2; pair += kItems) {
        const unsigned low = 2 * pair - (pair & (stride - 1)), high = low + stride;
        const unsigned one = keys[low], other = keys[high];
        if ((one > other) == ((low & size) == 0)) {
          keys[low] = other;
          keys[high] = one;
        }
      }
    }
  __syncthreads();
  for (unsigned at = threadIdx.x; at < n; at += kItems)
    data[at] = keys[at];
}

// Each work-item transforms 32 complex numbers, which are `total` apart, so that lanes are side by side.
__global__ __launch_bounds__(kItems) void fourier(const float2 *in, float2 *out, unsigned total) {
  const unsigned at = blockIdx.x * kItems + threadIdx.x;
  float2 values[kRadix];
#pragma unroll
  for (unsigned i = 0; i < kRadix; ++i) // in reversed order of bits
    values[__builtin_bitreverse32(i) >> 27] = in[i * total + at];
#pragma unroll
  for (unsigned half = 1; half < kRadix; half *= 2)
#pragma unroll
    for (unsigned i = 0; i < kRadix / 2; ++i) {
      const unsigned low = 2 * i - (i & (half - 1)), high = low + half;
      const float angle = -3.14159265f * float(i & (half - 1)) / float(half);
      const float c = __builtin_cosf(angle), s = __builtin_sinf(angle);
      const float2 one = values[low],
                   other = {c * values[high].x - s * values[high].y, s * values[high].x + c * values[high].y};
      values[low] = {one.x + other.x, one.y + other.y};
      values[high] = {one.x - other.x, one.y - other.y};
    }
#pragma unroll
  for (unsigned i = 0; i < kRadix; ++i)
    out[i * total + at] = values[i];
}

static bool sorts(unsigned n, unsigned groups) {
  std::vector<unsigned> numbers(n * groups);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = unsigned(i) * 2654435761u;
  unsigned *data = nullptr;
  if (hipMalloc(&data, numbers.size() * 4) != hipSuccess)
    return false;
  (void)hipMemcpy(data, numbers.data(), numbers.size() * 4, hipMemcpyHostToDevice);
  sort<<<groups, kItems>>>(data, n);
  (void)hipMemcpy(numbers.data(), data, numbers.size() * 4, hipMemcpyDeviceToHost);
  bool good = true;
  for (unsigned group = 0; group < groups; ++group)
    good = good && std::is_sorted(&numbers[group * n], &numbers[group * n] + n);
  return good && hipFree(data) == hipSuccess;
}

// Of a constant, everything is in the first number.
static bool transforms(unsigned total) {
  std::vector<float2> numbers(size_t(kRadix) * total, {1, 2});
  float2 *in = nullptr, *out = nullptr;
  const size_t size = numbers.size() * sizeof(float2);
  if (hipMalloc(&in, size) != hipSuccess || hipMalloc(&out, size) != hipSuccess)
    return false;
  (void)hipMemcpy(in, numbers.data(), size, hipMemcpyHostToDevice);
  fourier<<<total / kItems, kItems>>>(in, out, total);
  (void)hipMemcpy(numbers.data(), out, size, hipMemcpyDeviceToHost);
  bool good = true;
  for (size_t i = 0; i < numbers.size(); ++i)
    good = good && std::abs(numbers[i].x - (i < total ? kRadix : 0)) < 1e-3f &&
           std::abs(numbers[i].y - (i < total ? 2 * kRadix : 0)) < 1e-3f;
  return good && hipFree(in) == hipSuccess && hipFree(out) == hipSuccess;
}

int main(int count, char **arguments) {
  const unsigned n = count > 3 ? std::atoi(arguments[2]) : 0, more = count > 3 ? std::atoi(arguments[3]) : 0;
  const bool good = count > 3 && (!std::strcmp(arguments[1], "sort") ? sorts(n, more) : transforms(n * more));
  std::puts(good ? "right" : "wrong");
  return !good;
}
