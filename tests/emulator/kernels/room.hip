// Room for machine code that is made up: a kernel with every input of the ABI, all registers and 256 words of code.
#include <hip/hip_runtime.h>

extern "C" __global__ void room(unsigned *data, unsigned *end) {
  __shared__ unsigned shared[256];
  volatile unsigned stack[64];
  stack[threadIdx.x & 63] = threadIdx.y + threadIdx.z + blockIdx.y + blockIdx.z;
  shared[threadIdx.x] = stack[blockDim.x & 63];
  __syncthreads();
  data[threadIdx.x] = shared[(threadIdx.x + 1) & 255];
  asm volatile(".fill 256, 4, 0xbf800000");
  end[0] = 1;
}
