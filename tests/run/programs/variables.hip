// Constant, device and managed variables; managed memory.
#include "check.h"

__constant__ int table[16];
__device__ int total;
__managed__ int both = 5;

__global__ void use(int *out) {
  out[threadIdx.x] = table[threadIdx.x % 16] * both;
  atomicAdd(&total, out[threadIdx.x]);
}

__global__ void bump() { both += 1; }

int main() {
  int squares[16], zero = 0, sum = 0;
  for (int i = 0; i < 16; ++i)
    squares[i] = i * i;
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(table), squares, sizeof squares));
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(total), &zero, sizeof zero));
  int *managed = nullptr;
  HIP(hipMallocManaged(&managed, 64 * sizeof(int)));
  use<<<1, 64>>>(managed);
  HIP(hipDeviceSynchronize());
  int expected = 0;
  for (int i = 0; i < 64; ++i) {
    EXPECT(managed[i] == squares[i % 16] * 5);
    expected += managed[i];
  }
  HIP(hipMemcpyFromSymbol(&sum, HIP_SYMBOL(total), sizeof sum));
  EXPECT(sum == expected);
  both = 41;
  bump<<<1, 1>>>();
  HIP(hipDeviceSynchronize());
  EXPECT(both == 42);
  void *address = nullptr;
  HIP(hipGetSymbolAddress(&address, HIP_SYMBOL(total)));
  EXPECT(address != nullptr);
  std::printf("total %d\n", sum);
}
