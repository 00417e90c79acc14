// Atomics of a work-group's scope: on counters of its own, and on one that all work-groups have.
#include "check.h"

#include <cstring>

constexpr int kGroups = 3;

template <int scope> __device__ void add(int *counter) { __hip_atomic_fetch_add(counter, 1, __ATOMIC_RELAXED, scope); }

__global__ void own(int *counters) { add<__HIP_MEMORY_SCOPE_WORKGROUP>(counters + blockIdx.x); }
__global__ void agent(int *counters) { add<__HIP_MEMORY_SCOPE_AGENT>(counters); }
__global__ void everywhere(int *counters) { add<__HIP_MEMORY_SCOPE_SYSTEM>(counters); }
__global__ void workgroup(int *counters) { add<__HIP_MEMORY_SCOPE_WORKGROUP>(counters); } // line: workgroup
__global__ void mixed(int *counters) {
  if (blockIdx.x == 1)
    add<__HIP_MEMORY_SCOPE_WORKGROUP>(counters); // line: mixed
  else
    add<__HIP_MEMORY_SCOPE_AGENT>(counters); // line: mixed
}

int main(int, char **argv) {
  const auto is = [&](const char *what) { return !std::strcmp(argv[1], what); };
  int *counters = nullptr;
  HIP(hipMalloc(&counters, kGroups * sizeof(int)));
  HIP(hipMemset(counters, 0, kGroups * sizeof(int)));
  auto *const kernel = is("own")          ? own
                       : is("agent")      ? agent
                       : is("everywhere") ? everywhere
                       : is("mixed")      ? mixed
                                          : workgroup;
  kernel<<<kGroups, 64>>>(counters);
  HIP(hipDeviceSynchronize());
  HIP(hipFree(counters));
  std::puts("done");
}
