// What goes wrong on the device: argument "address", "trap", "lds", "null".
#include "check.h"

#include <string>

__global__ void outside(int *values, long far) { values[threadIdx.x + far] = 1; }
__global__ void trap(int *values) {
  values[0] = 1;
  __builtin_trap();
}
__global__ void asserts(int *values) { 
  if (threadIdx.x >= 0) 
    abort();
}

int main(int, char **arguments) {
  const std::string what = arguments[1];
  int *values = on_device(std::vector<int>(64));
  if (what == "address")
    outside<<<1, 64>>>(values, 1l << 30);
  if (what == "null")
    outside<<<1, 64>>>(nullptr, 0);
  if (what == "trap")
    trap<<<1, 64>>>(values);
  if (what == "abort")
    asserts<<<1, 64>>>(values);
  std::fflush(stdout);
  HIP(hipDeviceSynchronize());
  std::puts("went on");
}
