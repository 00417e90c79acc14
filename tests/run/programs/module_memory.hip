// Accesses of variables of the code object: which one, and the index of an element. Without arguments all are within.
#include "check.h"

#include <cstring>

alignas(256) __device__ int table[100];
alignas(256) __constant__ short halves[7];
alignas(256) static __device__ float mine[3];
extern "C" {
alignas(256) __device__ char letters[5];
}
alignas(256) static __device__ const double steps[3] = {1, 2.5, 3};
__constant__ float3 triple;

#define READS(name)                                                                                                    \
  __global__ void read_##name(int *out, long at) { out[0] = name[at]; }
READS(table)
READS(halves)
READS(mine)
READS(letters)
READS(steps)
__global__ void write_table(int *, long at) { table[at] = 1; }
__global__ void add_table(int *, long at) { atomicAdd(&table[at], 1); }
__global__ void write_mine(int *, long at) { mine[at] = 1; }

// Uniform constant addresses, of which compilers may load more than there is; and constants without symbols.
__global__ void within(int *out, int which) {
  const int local[6] = {3, 1, 4, 1, 5, 9};
  out[threadIdx.x] = table[99] + halves[6] + mine[2] + letters[4] + steps[2] + triple.z + local[which];
  if (which > 6)
    printf("%d", which);
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  const long at = argc > 2 ? std::atol(argv[2]) : 0;
  int *out = nullptr;
  if (argc <= 3)
    HIP(hipMalloc(&out, 256));
  const auto run = [&](const char *wanted, void (*kernel)(int *, long)) {
    if (!std::strcmp(name, wanted))
      kernel<<<1, 1>>>(out, at);
  };
  if (!*name)
    within<<<1, 64>>>(out, 0);
  run("table", read_table);
  run("halves", read_halves);
  run("mine", read_mine);
  run("letters", read_letters);
  run("steps", read_steps);
  run("write table", write_table);
  run("add table", add_table);
  run("write mine", write_mine);
  HIP(hipDeviceSynchronize());
  if (out)
    HIP(hipFree(out));
  std::puts("done");
}
