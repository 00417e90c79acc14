// Programs without a bug in which the order of accesses is not plain to see, one a run.
#include "check.h"

#include <hip/hip_cooperative_groups.h>

#include <cstring>
#include <numeric>

constexpr int kItems = 256, kGroups = 4, kAll = kItems * kGroups;

__device__ int load(const int *from) { return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT); }
__device__ void store(int *to, int value) { __hip_atomic_store(to, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT); }

// A barrier of all work-groups out of atomics.
__device__ void meet(int *arrived, int all) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (load(arrived) < all)
      __builtin_amdgcn_s_sleep(1);
    __threadfence();
  }
  __syncthreads();
}

__global__ void own_barrier(int *data, int *arrived) {
  const int at = blockIdx.x * kItems + threadIdx.x;
  for (int round = 1; round < 4; ++round) {
    const int next = data[(at + kItems) % (gridDim.x * kItems)];
    meet(arrived, (2 * round - 1) * gridDim.x);
    data[at] = next + 1;
    meet(arrived, 2 * round * gridDim.x);
  }
}

__global__ void shuffles(int *data) {
  __shared__ int sums[kItems / 32];
  int sum = data[blockIdx.x * kItems + threadIdx.x];
  for (int width = 16; width > 0; width /= 2)
    sum += __shfl_down(sum, width, 32);
  if (threadIdx.x % 32 == 0)
    sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < kItems / 32 ? sums[threadIdx.x] : 0;
    for (int width = 16; width > 0; width /= 2)
      sum += __shfl_down(sum, width, 32);
    if (threadIdx.x == 0)
      data[blockIdx.x * kItems] = sum;
  }
}

// The end of a reduction by one wave, without barriers.
__global__ void one_wave(int *data) {
  __shared__ int part[kItems];
  const int item = threadIdx.x;
  part[item] = data[blockIdx.x * kItems + item];
  __syncthreads();
  for (int width = kItems / 2; width >= 32; width /= 2) {
    if (item < width)
      part[item] += part[item + width];
    __syncthreads();
  }
  if (item < 32) {
    volatile int *own = part;
    for (int width = 16; width > 0; width /= 2)
      own[item] = own[item] + own[item + width];
  }
  if (item == 0)
    data[blockIdx.x * kItems] = part[0];
}

// Two buffers in turn: one barrier a round is enough.
__global__ void buffers(int *data) {
  extern __shared__ int both[];
  const int item = threadIdx.x, at = blockIdx.x * kItems + item;
  int value = data[at];
  for (int round = 0; round < 8; ++round) {
    int *now = both + round % 2 * kItems;
    now[item] = value;
    __syncthreads();
    value = now[(item + 1) % kItems] + 1;
  }
  data[at] = value;
}

// One wave takes the lock, all work, another one gives it back.
__global__ void handed_on(int *lock, int *data) {
  if (threadIdx.x == 0)
    while (atomicCAS(lock, 0, 1) != 0)
      ;
  __threadfence();
  __syncthreads();
  data[threadIdx.x] += 1;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == kItems - 1)
    atomicExch(lock, 0);
}

__global__ void tickets(int *next, int *served, int *data) {
  __shared__ int ticket;
  if (threadIdx.x == 0) {
    ticket = atomicAdd(next, 1);
    while (load(served) != ticket)
      ;
  }
  __syncthreads();
  data[threadIdx.x] += ticket;
  __syncthreads();
  if (threadIdx.x == 0)
    store(served, ticket + 1);
}

// The value is seen by a volatile flag and a fence.
__global__ void messages(int *data, volatile int *flag) {
  if (threadIdx.x != 0)
    return;
  if (blockIdx.x == 0) {
    data[0] = 42;
    __threadfence();
    *flag = 1;
  } else {
    while (*flag == 0)
      ;
    __threadfence();
    data[blockIdx.x] = data[0];
  }
}

// The flag is an atomic without a result, and one with a result sees it.
__global__ void published(int *data, int *flag) {
  if (threadIdx.x != 0)
    return;
  if (blockIdx.x == 0) {
    data[0] = 42;
    __threadfence();
    atomicExch(flag, 1);
  } else {
    while (atomicCAS(flag, 1, 1) == 0)
      ;
    __threadfence();
    data[blockIdx.x] = data[0];
  }
}

// Neighbours have bytes of the same dwords.
__global__ void bytes(unsigned char *data) {
  __shared__ unsigned char part[kItems];
  const int item = threadIdx.x, place = item % 4 * (kItems / 4) + item / 4; // waves share dwords
  part[place] = item;
  data[blockIdx.x * kItems + place] = item;
  __syncthreads();
  data[blockIdx.x * kItems + item] += part[(item + 4) % kItems];
}

// Sums of doubles as they were before there were atomics for them.
__global__ void by_exchange(double *sum) {
  auto *place = reinterpret_cast<unsigned long long *>(sum);
  unsigned long long seen = *place, before;
  do {
    before = seen;
    seen = atomicCAS(place, before, __double_as_longlong(__longlong_as_double(before) + 1));
  } while (seen != before);
}

// Parents in a forest, shortened by some and joined by others: relaxed stores are plain instructions on some targets.
__global__ void relaxed_stores(int *parents) {
  const int own = threadIdx.x % 16;
  const int seen = __hip_atomic_load(&parents[own], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  if (blockIdx.x % 2 == 0)
    atomicCAS(&parents[own], 0, own + int(blockIdx.x) + 1);
  else
    __hip_atomic_store(&parents[own], seen + int(blockIdx.x), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// The last work-group sets the counter back, for the next launch.
__global__ void set_back(int *data, unsigned *count) {
  __shared__ bool last;
  data[blockIdx.x * kItems + threadIdx.x] += 1;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    last = atomicAdd(count, 1) == gridDim.x - 1;
  __syncthreads();
  if (last) {
    int sum = 0;
    for (int group = 0; group < kGroups; ++group)
      sum += data[group * kItems + threadIdx.x];
    data[threadIdx.x] = sum;
    if (threadIdx.x == kItems - 1)
      *count = 0;
  }
}

// Waves of a work-group pass a number on, each when the one before has: plain instructions in LDS and in memory.
template <typename Load, typename Store>
__device__ void pass_on(int *data, int *turn, int *number, Load load, Store store) {
  const int wave = threadIdx.x / 64, behind = kItems / 64 - 1 - wave; // the last wave is first: waves do wait
  if (threadIdx.x % 64 == 0) {
    while (load(turn) != behind)
      ;
    *number = *number * 2 + 1;
    store(turn, behind + 1);
    while (load(turn) != kItems / 64)
      __builtin_amdgcn_s_sleep(1);
    data[blockIdx.x * kItems + wave] = *number;
  }
}

__device__ int load_near(const int *from) {
  return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP);
}
__device__ void store_near(int *to, int value) {
  __hip_atomic_store(to, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
}

__global__ void wave_turns(int *data) {
  __shared__ int turn, number;
  if (threadIdx.x == 0)
    turn = number = 0;
  __syncthreads();
  pass_on(data, &turn, &number, load_near, store_near);
}

__global__ void wave_turns_in_memory(int *data, int *zeros) {
  pass_on(data, zeros + 2 * blockIdx.x, zeros + 2 * blockIdx.x + 1, load_near, store_near);
}

// The same by a volatile flag, which is set before anybody waits for it, too.
__global__ void volatile_flag(int *data) {
  __shared__ volatile int flag;
  __shared__ int number;
  if (threadIdx.x == 0)
    flag = 0;
  __syncthreads();
  const int first = blockIdx.x % 2 ? 0 : kItems - 64;
  if (threadIdx.x == first) {
    number = 7;
    __threadfence_block();
    flag = 1;
  } else if (threadIdx.x == 64) {
    while (!flag)
      ;
    __threadfence_block();
    data[blockIdx.x] = number;
  }
}

__global__ void votes(int *data) {
  const int at = blockIdx.x * kItems + threadIdx.x;
  const int some = __syncthreads_or(data[at] & 1), many = __syncthreads_count(data[at] & 2);
  data[at] = some + many;
}

__global__ void is_set(const unsigned char *flags, int *data) {
  if (flags[threadIdx.x * 4])
    data[threadIdx.x] = 1;
}

__global__ void scale(int *data, int factor) { data[blockIdx.x * kItems + threadIdx.x] *= factor; }
__global__ void join(const int *a, const int *b, int *out) {
  const int at = blockIdx.x * kItems + threadIdx.x;
  out[at] = a[at] + b[kAll - 1 - at];
}

struct Padded {
  double x;
  float y;
};
__device__ int table[kAll];
__constant__ int factors[4];
__global__ void others(const Padded *in, Padded *out, const int *managed, const int *host, int *data) {
  const int at = blockIdx.x * kItems + threadIdx.x;
  out[at] = in[at];
  data[at] = managed[at] + host[at] + table[at] + factors[at % 4];
}

int in_streams(int *data) {
  int *a = nullptr, *b = nullptr;
  hipStream_t streams[2];
  hipEvent_t done;
  std::vector<int> ones(kAll, 1), back(kAll);
  HIP(hipMalloc(&a, kAll * sizeof(int)));
  HIP(hipMalloc(&b, kAll * sizeof(int)));
  HIP(hipEventCreate(&done));
  for (hipStream_t &each : streams)
    HIP(hipStreamCreate(&each));
  for (int round = 0; round < 3; ++round) {
    HIP(hipMemcpyAsync(a, ones.data(), kAll * sizeof(int), hipMemcpyHostToDevice, streams[0]));
    HIP(hipMemsetAsync(b, 0, kAll * sizeof(int), streams[1]));
    scale<<<kGroups, kItems, 0, streams[0]>>>(a, 2);
    scale<<<kGroups, kItems, 0, streams[1]>>>(b, 3);
    HIP(hipEventRecord(done, streams[1]));
    HIP(hipStreamWaitEvent(streams[0], done, 0));
    join<<<kGroups, kItems, 0, streams[0]>>>(a, b, data);
    HIP(hipMemcpyAsync(back.data(), data, kAll * sizeof(int), hipMemcpyDeviceToHost, streams[0]));
    HIP(hipStreamSynchronize(streams[0]));
    EXPECT(back[kAll - 1] == 2);
  }
  HIP(hipFree(a));
  HIP(hipFree(b));
  return 0;
}

int with_others(int *data) {
  Padded *in = nullptr, *out = nullptr;
  int *managed = nullptr, *host = nullptr;
  HIP(hipMalloc(&in, kAll * sizeof(Padded)));
  HIP(hipMalloc(&out, kAll * sizeof(Padded)));
  HIP(hipMallocManaged(&managed, kAll * sizeof(int)));
  HIP(hipHostMalloc(&host, kAll * sizeof(int)));
  std::vector<Padded> values(kAll, {1, 2});
  const std::vector<int> numbers(kAll, 5);
  HIP(hipMemcpy(in, values.data(), kAll * sizeof(Padded), hipMemcpyHostToDevice));
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(table), numbers.data(), kAll * sizeof(int)));
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(factors), numbers.data(), 4 * sizeof(int)));
  std::fill_n(managed, kAll, 1);
  std::fill_n(host, kAll, 2);
  others<<<kGroups, kItems>>>(in, out, managed, host, data);
  HIP(hipDeviceSynchronize());
  EXPECT(on_host(data, kAll)[7] == 13);
  return 0;
}

// A byte of each dword is written: any number may be there before.
int with_flags(int *data) {
  unsigned char *flags = nullptr;
  HIP(hipMalloc(&flags, kAll * 16));
  for (int begin = 0; begin < 16; ++begin) {
    HIP(hipMemset2D(flags + begin * kAll, 4, begin % 2, 1, kItems));
    is_set<<<1, kItems>>>(flags + begin * kAll, data);
  }
  HIP(hipDeviceSynchronize());
  return 0;
}

int main(int argc, char **argv) {
  const char *kernel = argc > 1 ? argv[1] : "";
  const auto is = [&](const char *what) { return !std::strcmp(kernel, what); };
  int *data = nullptr, *zeros = nullptr;
  HIP(hipMalloc(&data, kAll * sizeof(int)));
  HIP(hipMalloc(&zeros, kAll * sizeof(int)));
  HIP(hipMemset(data, 0, kAll * sizeof(int)));
  HIP(hipMemset(zeros, 0, kAll * sizeof(int)));
  void *arguments[] = {&data, &zeros};
  if (is("own_barrier"))
    HIP(hipLaunchCooperativeKernel(reinterpret_cast<void *>(own_barrier), dim3(kGroups), dim3(kItems), arguments, 0,
                                   nullptr));
  else if (is("plain_barrier")) // not cooperative: both run at once on two threads
    own_barrier<<<2, kItems>>>(data, zeros);
  else if (is("shuffles"))
    shuffles<<<kGroups, kItems>>>(data);
  else if (is("one_wave"))
    one_wave<<<kGroups, kItems>>>(data);
  else if (is("buffers"))
    buffers<<<kGroups, kItems, 2 * kItems * sizeof(int)>>>(data);
  else if (is("handed_on"))
    handed_on<<<kGroups, kItems>>>(zeros, data);
  else if (is("tickets"))
    tickets<<<kGroups, kItems>>>(zeros, zeros + 100, data);
  else if (is("messages"))
    messages<<<kGroups, kItems>>>(data, zeros);
  else if (is("published"))
    published<<<kGroups, kItems>>>(data, zeros);
  else if (is("bytes"))
    bytes<<<kGroups, kItems>>>(reinterpret_cast<unsigned char *>(data));
  else if (is("by_exchange"))
    by_exchange<<<kGroups, kItems>>>(reinterpret_cast<double *>(zeros));
  else if (is("set_back"))
    for (int turn = 0; turn < 3; ++turn)
      set_back<<<kGroups, kItems>>>(data, reinterpret_cast<unsigned *>(zeros));
  else if (is("relaxed_stores"))
    relaxed_stores<<<kGroups, kItems>>>(zeros);
  else if (is("wave_turns"))
    wave_turns<<<kGroups, kItems>>>(data);
  else if (is("wave_turns_in_memory"))
    wave_turns_in_memory<<<kGroups, kItems>>>(data, zeros);
  else if (is("volatile_flag"))
    volatile_flag<<<kGroups, kItems>>>(data);
  else if (is("votes"))
    votes<<<kGroups, kItems>>>(data);
  else if (is("streams"))
    in_streams(data);
  else if (is("others"))
    with_others(data);
  else if (is("flags"))
    with_flags(data);
  else if (is("large")) {
    int *much = nullptr;
    HIP(hipMalloc(&much, size_t{257} << 20));
    HIP(hipFree(much));
  } else
    return 1;
  HIP(hipDeviceSynchronize());
  if (is("by_exchange"))
    EXPECT(on_host(reinterpret_cast<double *>(zeros), 1)[0] == kAll);
  if (is("wave_turns") || is("wave_turns_in_memory"))
    EXPECT(on_host(data, kAll)[0] == 15);
  if (is("volatile_flag"))
    EXPECT(on_host(data, kAll)[1] == 7);
  if (is("own_barrier") || is("plain_barrier"))
    EXPECT(on_host(data, kAll)[9] == 3);
  std::puts("done");
  return 0;
}
