// printf on the device.
#include "check.h"

__global__ void say(int number) { printf("work-item %d of group %d says %d %s %.2f\n", int(threadIdx.x), int(blockIdx.x), number, "and", 0.5 * number); }

int main() {
  say<<<2, 2>>>(7);
  HIP(hipDeviceSynchronize());
  say<<<1, 1>>>(8);
  HIP(hipDeviceSynchronize());
}
