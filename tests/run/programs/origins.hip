// Values that nobody has written, copied by kernels before one decides by them.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <string>

#include "check.h"

constexpr int kCount = 256;

__global__ void copies(const int *in, int *out) { out[threadIdx.x] = in[threadIdx.x]; } // line: copies

__global__ void adds(const int *in, int *out) {
  __shared__ int all[kCount];
  all[threadIdx.x] = in[threadIdx.x] + 1; // line: adds
  __syncthreads();
  out[threadIdx.x] = all[threadIdx.x ^ 1]; // line: swaps
}

__global__ void decides(const int *in, int *out) {
  if (in[threadIdx.x] > 5) // line: decides
    atomicAdd(out, 1);
}

__global__ void picks(const int *in, const int *beside, int *out) {
  out[threadIdx.x] = beside[threadIdx.x];
  if (in[threadIdx.x] > 5) // line: picks
    atomicAdd(out, 1);
}

__global__ void joins(const int *in, const int *beside, int *out) {
  if (in[threadIdx.x] + beside[threadIdx.x] > 5) // line: joins
    atomicAdd(out, 1);
}

__global__ void reads_lds(const int *in, int *out) {
  __shared__ int all[kCount];
  if (threadIdx.x < 128)
    all[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (all[threadIdx.x] > 5) // line: reads_lds
    atomicAdd(out, 1);
}

__attribute__((optnone)) __global__ void reads_local(const int *in, int *out) {
  int first, second;
  if (in[0] == 12345)
    first = 1;
  second = first;
  if (second > 5) // line: reads_local
    out[threadIdx.x] = 1;
}

__global__ void reads_register(const int *in, int *out) {
  int value;
  asm volatile("; nobody writes %0" : "=v"(value));
  if (value > in[0]) // line: reads_register
    atomicAdd(out, 1);
}

int *get() {
  int *memory = nullptr;
  HIP(hipMalloc(&memory, kCount * sizeof(int)));
  return memory;
}

int main(int, char **arguments) {
  const std::string way = arguments[1];
  int *const source = get(); // line: source
  int *const beside = get(); // line: beside
  int *const second = get(), *const third = get(), *const out = get();
  HIP(hipMemset(out, 0, kCount * sizeof(int)));
  if (way == "direct")
    decides<<<1, kCount>>>(source, out);
  if (way == "copied" || way == "again") {
    copies<<<1, kCount>>>(source, second);
    if (way == "again") { // the value is written, and undefined again for another reason
      HIP(hipMemset(second, 0, kCount * sizeof(int)));
      copies<<<1, kCount>>>(beside, second);
    }
    decides<<<1, kCount>>>(second, out);
  }
  if (way == "twice" || way == "handed") {
    copies<<<1, kCount>>>(source, second);
    adds<<<1, kCount>>>(second, third);
    if (way == "twice")
      decides<<<1, kCount>>>(third, out);
  }
  if (way == "picked")
    picks<<<1, kCount>>>(source, beside, out + 0 * kCount);
  if (way == "joined")
    joins<<<1, kCount>>>(source, beside, out);
  if (way == "lds")
    reads_lds<<<1, kCount>>>(out, third);
  if (way == "local")
    reads_local<<<1, kCount>>>(out, third);
  if (way == "register")
    reads_register<<<1, kCount>>>(out, third);
  if (way == "written") {
    HIP(hipMemset(source, 0, kCount * sizeof(int)));
    copies<<<1, kCount>>>(source, second);
    decides<<<1, kCount>>>(second, out);
  }
  int numbers[kCount] = {};
  if (way == "handed")
    HIP(hipMemcpy(numbers, third, sizeof numbers, hipMemcpyDeviceToHost));
  HIP(hipDeviceSynchronize());
  for (int *each : {source, beside, second, third, out})
    HIP(hipFree(each));
  std::puts("done");
}
