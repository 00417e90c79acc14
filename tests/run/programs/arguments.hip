// Kernels with arguments of several types; `full` writes all vector registers that it can have.
#include "check.h"

#include <cstdio>

#define TEN(tens)                                                                                                      \
  "v" tens "0", "v" tens "1", "v" tens "2", "v" tens "3", "v" tens "4", "v" tens "5", "v" tens "6", "v" tens "7",      \
      "v" tens "8", "v" tens "9"

struct Pair {
  int first;
  float second;
};

template <typename T> __global__ void typed(T *to, T factor, bool on, signed char small, Pair pair) {
  if (on)
    to[threadIdx.x] = factor * small + pair.first;
}

extern "C" __global__ void plain(double *to, float factor, unsigned long count, const Pair *pairs) {
  if (threadIdx.x < count)
    to[threadIdx.x] = factor;
}

__global__ __launch_bounds__(256) void full(int *to, short value) {
  const int before = value;
  int sum = 0, first = 0; // where the result goes is known behind it alone
  asm volatile(".set number, 0\n"
               ".rept 256\n"
               "v_mov_b32 v[number], 1\n"
               ".set number, number + 1\n"
               ".endr\n"
               "v_or_b32 %0, v254, v255\n"
               "s_mov_b32 %1, 0"
               : "=v"(sum), "=s"(first), "+s"(to)
               : "s"(before)
               : TEN(""), TEN("1"), TEN("2"), TEN("3"), TEN("4"), TEN("5"), TEN("6"), TEN("7"), TEN("8"), TEN("9"),
                 TEN("10"), TEN("11"), TEN("12"), TEN("13"), TEN("14"), TEN("15"), TEN("16"), TEN("17"), TEN("18"),
                 TEN("19"), TEN("20"), TEN("21"), TEN("22"), TEN("23"), TEN("24"), "v255");
  to[first] = sum + value;
}

int main() {
  double *wide = on_device(std::vector<double>(64));
  int *narrow = on_device(std::vector<int>(64));
  typed<double><<<1, 64>>>(wide, -2.5, true, static_cast<signed char>(-3), Pair{7, 1.0f});
  plain<<<1, 64>>>(wide, 0.1f, 1ul << 63, nullptr);
  full<<<1, 64>>>(narrow, static_cast<short>(-2));
  HIP(hipDeviceSynchronize());
  EXPECT(on_host(wide, 1)[0] == static_cast<double>(0.1f));
  EXPECT(on_host(narrow, 1)[0] == -1);
  std::printf("%p %p\n", static_cast<void *>(wide), static_cast<void *>(narrow));
}
