// NaN that one kernel makes and others pass on through memory.
#include <cmath>
#include <cstdio>
#include <string>

#include "check.h"

constexpr int kCount = 256, kPlace = 77;

__global__ void makes(const float *in, float *out) {
  const float difference = in[threadIdx.x] - in[threadIdx.x]; // line: difference
  out[threadIdx.x] = difference;                              // line: stores
}

__global__ void copies(const float *in, float *out) { out[threadIdx.x] = in[threadIdx.x]; } // line: copies

__global__ void swaps(const float *in, float *out) {
  __shared__ float all[kCount];
  all[threadIdx.x] = in[threadIdx.x]; // line: to_lds
  __syncthreads();
  out[threadIdx.x] = all[threadIdx.x ^ 64] * 2.0f; // line: swaps
}

__global__ void adds(const float *in, const float *beside, float *out) {
  out[threadIdx.x] = in[threadIdx.x] + beside[threadIdx.x]; // line: adds
}

__global__ void alone(const float *in, float *out) {
  const float nothing = in[threadIdx.x] - in[threadIdx.x]; // line: nothing
  __builtin_amdgcn_sched_barrier(0);
  out[threadIdx.x] = nothing * 3.0f; // line: alone
}

__global__ void makes_wide(const double *in, double *out) {
  const double difference = in[threadIdx.x] - in[threadIdx.x]; // line: difference_wide
  out[threadIdx.x] = difference;                               // line: stores_wide
}

__global__ void adds_wide(const double *in, double *out) {
  out[threadIdx.x] = in[threadIdx.x] + 1.0; // line: adds_wide
}

int main(int, char **arguments) {
  const std::string way = arguments[1];
  std::vector<float> numbers(kCount, 1.0f), nans = numbers;
  std::vector<double> wide(kCount, 1.0);
  numbers[kPlace] = wide[kPlace] = INFINITY;
  nans[kPlace] = NAN;
  float *const in = on_device(numbers), *const ones = on_device(std::vector<float>(kCount, 1.0f));
  float *const first = on_device(nans), *const second = on_device(nans), *const out = on_device(nans);
  double *const wide_in = on_device(wide), *const wide_first = on_device(wide), *const wide_out = on_device(wide);
  if (way != "given" && way != "alone" && way != "wide")
    makes<<<1, kCount>>>(in, first);
  if (way == "overwritten") {
    HIP(hipDeviceSynchronize());
    HIP(hipMemcpy(first, nans.data(), kCount * sizeof(float), hipMemcpyHostToDevice));
  }
  if (way == "stored_over") {
    makes<<<1, kCount>>>(ones, first);
    copies<<<1, kCount>>>(second, first);
  }
  if (way == "copied")
    copies<<<1, kCount>>>(first, second);
  if (way == "lds")
    swaps<<<1, kCount>>>(first, out);
  else if (way == "alone")
    alone<<<1, kCount>>>(in, out);
  else if (way == "wide") {
    makes_wide<<<1, kCount>>>(wide_in, wide_first);
    adds_wide<<<1, kCount>>>(wide_first, wide_out);
  } else {
    adds<<<1, kCount>>>(way == "copied" ? second : first, ones, out);
  }
  HIP(hipDeviceSynchronize());
  for (float *each : {in, ones, first, second, out})
    HIP(hipFree(each));
  for (double *each : {wide_in, wide_first, wide_out})
    HIP(hipFree(each));
  std::puts("done");
}
