// A flag and a lock between work-groups, with the fences that they need, or without one of them.
#include "check.h"

#include <cstring>

constexpr int kItems = 32, kGroups = 3;
enum Fence { kNone, kBlock, kDevice };

template <Fence which> __device__ void fence() {
  if (which == kBlock)
    __threadfence_block();
  if (which == kDevice)
    __threadfence();
}
template <int scope> __device__ int load(const int *from) {
  return __hip_atomic_load(from, __ATOMIC_RELAXED, scope);
}
constexpr int kAgent = __HIP_MEMORY_SCOPE_AGENT, kGroup = __HIP_MEMORY_SCOPE_WORKGROUP;

// Another work-group reads data, which is then replaced, and read again when the flag says so.
template <Fence release, Fence acquire, int scope> __global__ void by_flag(int *data, int *flags) {
  const int item = threadIdx.x;
  if (blockIdx.x == 0) {
    while (load<kAgent>(flags) == 0)
      ;
    __threadfence();
    data[item] = 42; // line: replaces
    fence<release>();
    if (item == 0)
      atomicExch(flags + 32, 1);
  } else if (blockIdx.x == 1) {
    data[kItems + item] = data[item];
    __threadfence();
    if (item == 0)
      atomicExch(flags, 1);
    int seen;
    while ((seen = load<scope>(flags + 32)) == 0) // line: waits
      ;
    fence<acquire>();
    data[2 * kItems + item] = data[item + seen - 1]; // line: reads
  }
}

template <Fence release, Fence acquire> __global__ void by_lock(int *data, int *lock) {
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0)
      ;
    fence<acquire>();
    data[0] += 1; // line: adds
    fence<release>();
    atomicExch(lock, 0);
  }
}

int main(int, char **argv) {
  const auto is = [&](const char *what) { return !std::strcmp(argv[1], what); };
  int *const data = on_device(std::vector<int>(3 * kItems)), *const flags = on_device(std::vector<int>(64));
  const auto by = is("flag")              ? by_flag<kDevice, kDevice, kAgent>
                  : is("flag-no-release") ? by_flag<kNone, kDevice, kAgent>
                  : is("flag-block")      ? by_flag<kBlock, kDevice, kAgent>
                  : is("flag-no-acquire") ? by_flag<kDevice, kNone, kAgent>
                  : is("flag-near")       ? by_flag<kDevice, kDevice, kGroup>
                  : is("lock")            ? by_lock<kDevice, kDevice>
                  : is("lock-no-release") ? by_lock<kNone, kDevice>
                                          : by_lock<kDevice, kNone>;
  by<<<kGroups, kItems>>>(data, flags);
  HIP(hipDeviceSynchronize());
  HIP(hipFree(data));
  HIP(hipFree(flags));
  std::puts("done");
}
