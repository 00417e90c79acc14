// Flags and locks between work-groups, and within one, with the fences that they need, or without one of them.
#include "check.h"

#include <cstring>

constexpr int kItems = 32, kGroups = 3, kWave = 64;
enum Fence { kNone, kBlock, kDevice };

template <Fence which> __device__ void fence() {
  if (which == kBlock)
    __threadfence_block();
  if (which == kDevice)
    __threadfence();
}
template <int scope> __device__ int load(const int *from) { return __hip_atomic_load(from, __ATOMIC_RELAXED, scope); }
template <int scope> __device__ void store(int *to, int value) {
  __hip_atomic_store(to, value, __ATOMIC_RELAXED, scope);
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

__device__ void pause() {
  for (int count = 0; count < 10000; ++count)
    __builtin_amdgcn_s_sleep(1);
}

// The last work-group sees both flags when they are long set, by atomics that are plain stores on some targets.
__global__ void by_flags(int *data, int *flags) {
  const int item = threadIdx.x;
  if (blockIdx.x == 0) {
    for (int part = 0; part < 2; ++part) {
      data[part * kItems + item] = 42;
      __threadfence();
      if (item == 0)
        store<kAgent>(flags + 32 * part, 1);
    }
  } else if (blockIdx.x == 2) {
    pause();
    for (int part = 0; part < 2; ++part) {
      while (load<kAgent>(flags + 32 * part) == 0)
        ;
      __threadfence();
    }
    data[2 * kItems + item] = data[kItems + item];
  }
}

// A work-group in between accesses memory before it sees the first flag and sets the second.
__global__ void relay(int *data, int *flags) {
  const int item = threadIdx.x;
  if (blockIdx.x == 0) {
    pause();
    data[item] = 42;
    __threadfence();
    if (item == 0)
      store<kAgent>(flags, 1);
  } else if (blockIdx.x == 1) {
    const int before = data[kItems + item];
    while (load<kAgent>(flags) == 0)
      ;
    __threadfence();
    if (item == 0)
      store<kAgent>(flags + 32, 1 + before);
  } else {
    while (load<kAgent>(flags + 32) == 0)
      ;
    __threadfence();
    data[2 * kItems + item] = data[item];
  }
}

// A wave takes a work-group's lock or sees its flag, and hands on to the next one without a barrier.
template <bool in_lds> __global__ void hand_on(int *data, int *flags) {
  __shared__ int shared;
  const int wave = threadIdx.x / kWave, item = threadIdx.x % kWave;
  int *const next = in_lds ? &shared : flags + 1 + blockIdx.x;
  if (threadIdx.x == 0)
    store<kGroup>(next, 0);
  __syncthreads();
  if (blockIdx.x == 0) {
    while (load<kAgent>(flags) == 0)
      ;
    __threadfence();
    if (wave == 0)
      data[item % kItems] = 42;
    __syncthreads();
    __threadfence();
    if (threadIdx.x == 0)
      atomicExch(flags + 32, 1);
  } else if (blockIdx.x == 1) {
    data[kItems + item % kItems] = data[item % kItems];
    __syncthreads();
    __threadfence();
    if (threadIdx.x == 0)
      atomicExch(flags, 1);
    if (wave == 0) {
      while (load<kAgent>(flags + 32) == 0)
        ;
      __threadfence();
      if (item == 0)
        __hip_atomic_store(next, 1, __ATOMIC_RELEASE, kGroup);
    } else {
      while (__hip_atomic_load(next, __ATOMIC_ACQUIRE, kGroup) == 0)
        ;
      data[2 * kItems + item % kItems] = data[item % kItems];
    }
  }
}

// The waves of a work-group add one after the other.
template <Fence release, Fence acquire> __global__ void within(int *data, int *lock) {
  if (blockIdx.x == 0 && threadIdx.x % kWave == 0) {
    int expected = 0;
    while (!__hip_atomic_compare_exchange_strong(lock, &expected, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED, kGroup))
      expected = 0;
    fence<acquire>();
    data[0] += 1; // line: adds within
    fence<release>();
    __hip_atomic_exchange(lock, 0, __ATOMIC_RELAXED, kGroup);
  }
}

int main(int, char **argv) {
  const auto is = [&](const char *what) { return !std::strcmp(argv[1], what); };
  int *const data = on_device(std::vector<int>(3 * kItems)), *const flags = on_device(std::vector<int>(64));
  const auto by = is("flag")                ? by_flag<kDevice, kDevice, kAgent>
                  : is("flag-no-release")   ? by_flag<kNone, kDevice, kAgent>
                  : is("flag-block")        ? by_flag<kBlock, kDevice, kAgent>
                  : is("flag-no-acquire")   ? by_flag<kDevice, kNone, kAgent>
                  : is("flag-near")         ? by_flag<kDevice, kDevice, kGroup>
                  : is("lock")              ? by_lock<kDevice, kDevice>
                  : is("lock-no-release")   ? by_lock<kNone, kDevice>
                  : is("lock-no-acquire")   ? by_lock<kDevice, kNone>
                  : is("flags")             ? by_flags
                  : is("relay")             ? relay
                  : is("hand-on")           ? hand_on<false>
                  : is("hand-on-lds")       ? hand_on<true>
                  : is("within")            ? within<kBlock, kBlock>
                  : is("within-no-release") ? within<kNone, kBlock>
                                            : within<kBlock, kNone>;
  const bool has_waves = is("hand-on") || is("hand-on-lds") || !std::strncmp(argv[1], "within", 6);
  by<<<kGroups, has_waves ? 2 * kWave : kItems>>>(data, flags);
  HIP(hipDeviceSynchronize());
  HIP(hipFree(data));
  HIP(hipFree(flags));
  std::puts("done");
}
