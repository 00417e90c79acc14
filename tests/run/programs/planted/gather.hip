// Bytes that a table of indices chooses; stores of parts of dwords.
#include "check.h"

__global__ void table(int *to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[/*index*/ i] = n - 1 - i; // uses where
}

__global__ void gather(const unsigned char *from, const int *where, unsigned char *to, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const int at = where[/*index*/ i]; // reads where
    to[/*index*/ i] = from[/*index*/ at] + 1; // uses to; reads from; may fault
  }
}

int main() {
  const int n = 1024;
  unsigned char *from = nullptr, *to = nullptr;
  int *where = nullptr;
  HIP(hipMalloc(&from, /*size from*/ n));
  HIP(hipMalloc(&to, /*size to*/ n));
  HIP(hipMalloc(&where, /*size where*/ n * sizeof(int)));
  /*init from*/ HIP(hipMemset(from, 7, 512)); HIP(hipMemset(from + 512, 9, 512));
  /*init where*/ table<<<4, 256>>>(where, n);
  /*early from*/
  /*early to*/
  /*early where*/
  gather<<<1, 256>>>(from, where, to, n);
  HIP(hipDeviceSynchronize());
  /*freed from*/ HIP(hipFree(from));
  /*freed to*/ HIP(hipFree(to));
  /*freed where*/ HIP(hipFree(where));
}
