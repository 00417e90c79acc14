// What goes wrong on the device, as the argument says; "late" does nothing wrong,
// but waits for a line of input first.
#include "check.h"

#include <cassert>
#include <string>

__global__ void outside(int *values, long far) { values[threadIdx.x + far] = 1; }
__global__ void trap(int *values) {
  values[0] = 1;
  __builtin_trap();
}
__global__ void end_all(const int *values) {
  if (values[threadIdx.x] == 0)
    abort();
}
__global__ void asserts(const int *values) { assert(values[threadIdx.x] == 0 && "all are 0"); }
__global__ void forever(volatile int *values) {
  while (values[0] == 0)
    ;
}
__global__ void jump(void (*target)()) { target(); }

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
    end_all<<<1, 64>>>(values);
  if (what == "assert" || what == "assert passes") {
    const int one = 1;
    if (what == "assert")
      HIP(hipMemcpy(values + 5, &one, sizeof one, hipMemcpyHostToDevice));
    asserts<<<1, 64>>>(values);
  }
  if (what == "jump")
    jump<<<1, 64>>>(reinterpret_cast<void (*)()>(values));
  if (what == "forever") {
    std::puts("ready");
    std::fflush(stdout);
    forever<<<1, 64>>>(values);
  }
  if (what == "late") {
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    outside<<<1, 64>>>(values, 0);
  }
  HIP(hipDeviceSynchronize());
  std::puts("went on");
}
