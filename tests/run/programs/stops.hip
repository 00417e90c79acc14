// What stops a kernel, or leaves its LDS or an allocation, as the first argument says; with a second one the program has
// memory of HIP.
#include "check.h"

#include <fcntl.h>
#include <string>
#include <sys/mman.h>

__device__ int seen[256];

__global__ void lds(int far) {
  __shared__ int part[256];
  part[threadIdx.x + far] = threadIdx.x; // line: lds
  __syncthreads();
  seen[threadIdx.x] = part[threadIdx.x];
}
__global__ void generic(int far) {
  __shared__ int part[256];
  int *volatile any = part;
  any[threadIdx.x + far] = threadIdx.x; // line: generic
  __syncthreads();
  seen[threadIdx.x] = part[threadIdx.x];
}
__global__ void scratch(int far) {
  volatile int own[8];
  own[threadIdx.x % 8] = far;
  own[threadIdx.x % 8 + far] = far; // line: scratch
  seen[threadIdx.x] = own[0];
}
__global__ void gap(const int *at, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    seen[i % 256] = at[i]; // line: gap
}
__global__ void trap() { __builtin_trap(); } // line: trap
__global__ void store(int *at) { at[threadIdx.x] = 1; } // line: store

int main(int count, char **arguments) {
  const std::string what = arguments[1];
  int here[64] = {1}, *at = nullptr;
  if (count > 2)
    HIP(hipMalloc(&at, 4000));
  if (what == "lds")
    lds<<<1, 256>>>(8);
  else if (what == "generic")
    generic<<<1, 256>>>(8);
  else if (what == "scratch")
    scratch<<<1, 256>>>(1 << 16);
  else if (what == "behind" || what == "front") { // all that is between two allocations, or half of it and a bit more
    int *low = at, *high = nullptr;
    HIP(hipMalloc(&high, 4000));
    if (high < low)
      std::swap(low, high);
    const int count = high - low - 1000, some = what == "behind" ? count : count / 2 + 50;
    EXPECT(count < 1 << 14);
    gap<<<count / 256 + 1, 256>>>(high - some, some);
  } else if (what == "trap")
    trap<<<1, 64>>>();
  else if (what == "null")
    store<<<1, 64>>>(nullptr);
  else if (what == "offset")
    store<<<1, 64>>>(reinterpret_cast<int *>(4096));
  else if (what == "wild")
    store<<<1, 64>>>(reinterpret_cast<int *>(0x123456789000));
  else if (what == "heap")
    store<<<1, 64>>>(new int[64]);
  else if (what == "stack")
    store<<<1, 64>>>(here);
  else if (what == "file")
    store<<<1, 64>>>(static_cast<int *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, open(arguments[0], O_RDONLY), 0)));
  HIP(hipDeviceSynchronize());
  std::puts("done");
}
