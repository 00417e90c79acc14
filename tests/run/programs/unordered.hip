// Bugs in the order of accesses, in what is initialised and in barriers, one a run: which kernel, and which bug.
// Without one, everything is as it should be.
#include "check.h"

#include <cstring>
#include <vector>

enum Bug { kNone, kBarrier, kAtomic, kInit, kDivergent, kEnded, kLeft, kLate };
constexpr int kItems = 256, kGroups = 4, kAll = kItems * kGroups, kBins = 64;

// Sums of work-groups in LDS.
template <Bug bug> __global__ void tree(const int *data, int *sums) {
  __shared__ int part[kItems];
  const int item = threadIdx.x;
  if (bug != kInit || item < 192)
    part[item] = data[blockIdx.x * kItems + item]; // line: tree stores
  if (bug != kBarrier)
    __syncthreads();
  for (int width = kItems / 2; width > 0; width /= 2) {
    if (item < width)
      part[item] += part[item + width]; // line: tree adds
    __syncthreads();
  }
  if (item == 0)
    sums[blockIdx.x] = part[0];
}

// Counts in LDS, which all work-groups add up.
template <Bug bug> __global__ void histogram(const int *data, int *counts) {
  __shared__ int bins[kBins];
  if (threadIdx.x < kBins)
    bins[threadIdx.x] = 0; // line: histogram clears
  if (bug != kBarrier)
    __syncthreads();
  atomicAdd(&bins[data[blockIdx.x * kItems + threadIdx.x] % kBins], 1); // line: histogram counts
  if (bug != kLate)
    __syncthreads();
  if (threadIdx.x < kBins) {
    if (bug == kAtomic)
      counts[threadIdx.x] += bins[threadIdx.x]; // line: histogram adds
    else
      atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]); // line: histogram reads
  }
}

// The last work-group to end adds up what all have stored.
template <Bug bug> __global__ void last_one(const int *data, int *sums, int *done, int *total) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int item = 0; item < kItems; ++item)
      sum += data[blockIdx.x * kItems + item];
    sums[blockIdx.x] = sum; // line: last_one stores
    __threadfence();
    is_last = (bug == kAtomic ? (*done)++ : atomicAdd(done, 1)) == kGroups - 1; // line: last_one counts
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    int sum = 0;
    for (int group = 0; group < kGroups; ++group)
      sum += sums[group]; // line: last_one adds
    *total = sum;
  }
}

// Each work-group waits for the sum of the ones before it.
template <Bug bug> __global__ void look_back(const int *data, int *sums, int *flags, int *total) {
  if (threadIdx.x != 0)
    return;
  int sum = 0;
  for (int item = 0; item < kItems; ++item)
    sum += data[blockIdx.x * kItems + item];
  if (blockIdx.x > 0) {
    while (__hip_atomic_load(&flags[blockIdx.x - 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0)
      ;
    sum += sums[blockIdx.x - 1];
  }
  sums[blockIdx.x] = sum;
  __hip_atomic_store(&flags[blockIdx.x], 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  if (blockIdx.x == kGroups - 1)
    *total = sum;
}

// A lock around what all add to.
template <Bug bug> __global__ void locked(const int *data, int *lock, int *total) {
  if (threadIdx.x != 0)
    return;
  if (bug != kAtomic)
    while (atomicCAS(lock, 0, 1) != 0)
      ;
  __threadfence();
  for (int item = 0; item < kItems; ++item)
    *total += data[blockIdx.x * kItems + item]; // line: locked adds
  __threadfence();
  if (bug != kAtomic)
    __hip_atomic_store(lock, 0, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}

// Waves of a work-group add one after the other.
template <Bug bug> __global__ void turns(const int *data, int *sums) {
  __shared__ int turn, sum;
  const int wave = threadIdx.x / 64;
  if (threadIdx.x == 0)
    turn = sum = 0;
  __syncthreads();
  if (threadIdx.x % 64 != 0)
    return;
  if (bug != kAtomic)
    while (__hip_atomic_load(&turn, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) != wave)
      ;
  sum += data[blockIdx.x * kItems + threadIdx.x]; // line: turns adds
  __hip_atomic_store(&turn, wave + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
  if (wave == kItems / 64 - 1)
    sums[blockIdx.x] = sum;
}

// Work-items that are too many do nothing, or skip a barrier.
template <Bug bug> __global__ void partial(const int *data, int *out, int count) {
  __shared__ int part[kItems];
  const int item = threadIdx.x, at = blockIdx.x * kItems + item;
  part[item] = data[at];
  if (bug == kDivergent && item % 32 < 30) {
    __syncthreads(); // line: partial waits
    part[item] = part[item] + 1;
  } else if ((bug == kEnded && item >= 192) || (bug == kLeft && item >= 250)) {
    return; // line: partial leaves
  }
  __syncthreads();                   // line: partial meets
  out[at] = part[kItems - 1 - item]; // line: partial stores
}

template <Bug bug> int run(const char *kernel) {
  const auto is = [&](const char *what) { return !std::strcmp(kernel, what); };
  std::vector<int> host(kAll);
  for (int item = 0; item < kAll; ++item)
    host[item] = item * 7 % 1000;
  int *data = nullptr, *out = nullptr;
  HIP(hipMalloc(&data, kAll * sizeof(int)));
  HIP(hipMalloc(&out, kAll * sizeof(int)));
  if (bug == kInit && !is("tree")) // the last quarter stays as it is
    HIP(hipMemcpy(data, host.data(), kAll / 4 * 3 * sizeof(int), hipMemcpyHostToDevice));
  else
    HIP(hipMemcpy(data, host.data(), kAll * sizeof(int), hipMemcpyHostToDevice));
  HIP(hipMemset(out, 0, kAll * sizeof(int)));
  if (is("tree"))
    tree<bug><<<kGroups, kItems>>>(data, out);
  else if (is("histogram"))
    histogram<bug><<<kGroups, kItems>>>(data, out);
  else if (is("last_one"))
    last_one<bug><<<kGroups, kItems>>>(data, out, out + 100, out + 101);
  else if (is("look_back"))
    look_back<bug><<<kGroups, kItems>>>(data, out, out + 100, out + 200);
  else if (is("locked"))
    locked<bug><<<kGroups, kItems>>>(data, out, out + 100);
  else if (is("turns"))
    turns<bug><<<kGroups, kItems>>>(data, out);
  else
    partial<bug><<<kGroups, kItems>>>(data, out, kAll);
  HIP(hipDeviceSynchronize());
  std::vector<int> back(kAll);
  HIP(hipMemcpy(back.data(), out, kAll * sizeof(int), hipMemcpyDeviceToHost));
  HIP(hipFree(data));
  HIP(hipFree(out));
  std::puts("done");
  return 0;
}

int main(int argc, char **argv) {
  const char *kernel = argc > 1 ? argv[1] : "tree", *bug = argc > 2 ? argv[2] : "none";
  const auto is = [&](const char *what) { return !std::strcmp(bug, what); };
  return is("barrier")     ? run<kBarrier>(kernel)
         : is("atomic")    ? run<kAtomic>(kernel)
         : is("init")      ? run<kInit>(kernel)
         : is("divergent") ? run<kDivergent>(kernel)
         : is("ended")     ? run<kEnded>(kernel)
         : is("left")      ? run<kLeft>(kernel)
         : is("late")      ? run<kLate>(kernel)
                           : run<kNone>(kernel);
}
