// Values that nobody has written, and what becomes of them: decisions, and uses that decide nothing.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "check.h"

constexpr int kCount = 256;
struct Padded {
  char small;
  int number;
};

// A value that the compiler must take as it is.
__device__ int opaque(int value) {
  asm volatile("" : "+v"(value));
  return value;
}

__global__ void memory_branch(const int *in, int *out) {
  int value = opaque(in[threadIdx.x]);
  if (__builtin_amdgcn_readfirstlane(value) > 5) // line: memory_branch
    out[threadIdx.x] = 1;
}

__global__ void memory_mask(const int *in, int *out) {
  if (in[threadIdx.x] > 5) // line: memory_mask
    atomicAdd(out, 1);
}

__global__ void memory_address(const int *in, int *out) {
  out[in[threadIdx.x] & 255] = 1; // line: memory_address
}

__global__ void lds_mask(const int *in, int *out) {
  __shared__ int shared[kCount];
  if (threadIdx.x != 7)
    shared[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (shared[threadIdx.x ^ 1] == 3) // line: lds_mask
    atomicAdd(out, 1);
}

__global__ void lds_address(const int *in, int *out) {
  __shared__ int shared[kCount];
  if (threadIdx.x < 128)
    shared[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[shared[threadIdx.x] & 255] = 1; // line: lds_address
}

__global__ void arithmetic_mask(const int *in, int *out) {
  int sum = in[threadIdx.x] * 3 + int(threadIdx.x);
  out[threadIdx.x] = sum;
  __syncthreads();
  if (out[threadIdx.x ^ 1] > 100) // line: arithmetic_mask
    atomicAdd(out, 1);
}

__global__ void register_mask(const int *in, int *out) {
  int value;
  asm volatile("; nobody writes %0" : "=v"(value));
  if (value > in[0]) // line: register_mask
    atomicAdd(out, 1);
}

// Lane 31 is not launched: nothing writes its registers.
__global__ void unlaunched_branch(const int *, int *out) {
  if (__builtin_amdgcn_readlane(opaque(threadIdx.x * 3), 31) > 5) // line: unlaunched_branch
    out[threadIdx.x] = 1;
}

__attribute__((optnone)) __global__ void local_mask(const int *in, int *out) {
  int first, second;
  if (in[0] == 12345)
    first = 1;
  second = first;
  if (second > 5) // line: local_mask
    out[threadIdx.x] = 1;
}

__global__ void copied(const int *in, int *out) { out[threadIdx.x] = in[threadIdx.x]; }

__global__ void masked_away(const int *in, int *out) {
  int value = opaque(in[threadIdx.x]);
  if ((value & opaque(0)) == 0)
    out[threadIdx.x] = value & 1;
}

__global__ void low_bits(const int *in, int *out) {
  // The undefined bits are above those that decide.
  int value = (opaque(in[threadIdx.x]) << 4) | (threadIdx.x & 15);
  if ((value & 15) > 7)
    out[threadIdx.x] = 1;
}

__global__ void selected(const int *in, int *out) {
  int value = opaque(in[threadIdx.x]);
  int chosen = threadIdx.x < opaque(1000) ? opaque(4) : value;
  if (chosen == 4)
    out[threadIdx.x] = chosen;
}

__global__ void structs(const Padded *in, Padded *out) {
  Padded mine = in[threadIdx.x];
  if (mine.number >= 0 && mine.small == 1)
    out[threadIdx.x] = mine;
}

__global__ void fill(Padded *all) {
  all[threadIdx.x].small = 1;
  all[threadIdx.x].number = threadIdx.x;
}

__attribute__((optnone)) __global__ void locals(const int *in, int *out) {
  int all[4];
  for (int i = 0; i < 4; ++i)
    all[i] = i;
  int unused;
  int copy = unused;
  if (all[in[0] & 3] == 0)
    out[threadIdx.x] = copy & 0;
}

int main(int argc, char **argv) {
  const std::string name = argv[1];
  const bool writes = argc > 2 && !std::strcmp(argv[2], "written");
  int *in, *out;
  HIP(hipMalloc(&in, kCount * sizeof(Padded)));
  HIP(hipMalloc(&out, kCount * sizeof(Padded)));
  const std::map<std::string, void (*)(const int *, int *)> simple = {{"memory_branch", memory_branch},
                                                                      {"memory_mask", memory_mask},
                                                                      {"memory_address", memory_address},
                                                                      {"lds_mask", lds_mask},
                                                                      {"lds_address", lds_address},
                                                                      {"arithmetic_mask", arithmetic_mask},
                                                                      {"register_mask", register_mask},
                                                                      {"local_mask", local_mask},
                                                                      {"copied", copied},
                                                                      {"masked_away", masked_away},
                                                                      {"low_bits", low_bits},
                                                                      {"selected", selected},
                                                                      {"locals", locals},
                                                                      {"unlaunched_branch", unlaunched_branch}};
  const bool needs_input = name.rfind("lds", 0) == 0 || name.rfind("local", 0) == 0 || name.rfind("register", 0) == 0;
  if (writes || needs_input) {
    std::vector<int> numbers(kCount, 2);
    HIP(hipMemcpy(in, numbers.data(), kCount * sizeof(int), hipMemcpyHostToDevice));
  }
  if (name == "structs") {
    fill<<<1, kCount>>>(reinterpret_cast<Padded *>(in));
    structs<<<1, kCount>>>(reinterpret_cast<const Padded *>(in), reinterpret_cast<Padded *>(out));
  } else {
    simple.at(name)<<<1, name == "unlaunched_branch" ? 24 : kCount>>>(in, out);
  }
  HIP(hipDeviceSynchronize());
  HIP(hipFree(in));
  HIP(hipFree(out));
  std::puts("done");
}
