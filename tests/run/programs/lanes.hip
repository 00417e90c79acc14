// Shuffles and masks of lanes: written for other numbers of lanes than the wave has, and right ones.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "check.h"

constexpr int kCount = 64;

// Work-groups of 32 on waves of 64: half the lanes are not active.
__global__ void stored(const int *in, int *out) {
  int value = in[threadIdx.x];
  for (int offset = warpSize / 2; offset; offset /= 2)
    value += __shfl_down(value, offset);
  if (threadIdx.x == 0)
    out[0] = value; // line: stored
}

__global__ void branched(const int *in, int *out) {
  if (__shfl_xor(in[threadIdx.x], warpSize / 2) > 5) // line: branched
    out[threadIdx.x] = 1;
}

__global__ void addressed(const int *in, int *out) {
  out[__shfl_xor(in[threadIdx.x], warpSize / 2) & 63] = 1; // line: addressed
}

__global__ void added(const int *in, int *out) {
  int value = in[threadIdx.x];
  value = max(value, __shfl_xor(value, warpSize / 2));
  if (threadIdx.x < 4)
    atomicAdd(out, value); // line: added
}

// Masks of 64 lanes in 32 bits.
__global__ void counted(const int *in, int *out) {
  unsigned positive = __ballot(in[threadIdx.x] > 0); // line: counted
  if (threadIdx.x == 0)
    out[0] = __popc(positive);
}

__global__ void preceding(const int *in, int *out) {
  unsigned positive = __ballot(in[threadIdx.x] > 0); // line: preceding
  out[threadIdx.x] = __popc(positive & ((1u << (threadIdx.x & 31)) - 1));
}

__global__ void searched(const int *in, int *out) {
  int positive = __ballot(in[threadIdx.x] > 0); // line: searched
  out[threadIdx.x] = __ffs(positive);
}

__global__ void compared(const int *in, int *out) {
  if (__ballot(in[threadIdx.x] > 0) == 0xffffffffu) // line: compared
    out[threadIdx.x] = 1;
}

__global__ void active(const int *in, int *out) {
  if (in[threadIdx.x] < 1000) {
    unsigned mask = __ballot(1);
    out[threadIdx.x] = __popc(mask); // line: active
  }
}

// Lanes that waves of 32 do not have.
__global__ void reduced(const int *in, int *out) {
  int value = in[threadIdx.x];
  for (int offset = 32; offset; offset /= 2)
    value += __shfl_xor(value, offset, 64); // line: reduced
  out[threadIdx.x] = value;
}

__global__ void last_lane(const int *in, int *out) {
  out[threadIdx.x] = __builtin_amdgcn_readlane(in[threadIdx.x], 63); // line: last_lane
}

__global__ void rotated(const int *in, int *out) { // right: modulo the number of lanes
  out[threadIdx.x] = __builtin_amdgcn_ds_bpermute((threadIdx.x % warpSize + 5) * 4, in[threadIdx.x]);
}

// Right ones. The first six have 48 lanes.
__global__ void guarded(const int *in, int *out) {
  int value = in[threadIdx.x];
  for (unsigned offset = 32; offset; offset /= 2) {
    int further = __shfl_down(value, offset);
    if (threadIdx.x + offset < blockDim.x)
      value += further;
  }
  out[threadIdx.x] = value;
}

__global__ void only_first(const int *in, int *out) {
  int value = in[threadIdx.x];
  for (int offset = 16; offset; offset /= 2)
    value += __shfl_down(value, offset);
  if (threadIdx.x == 0)
    out[0] = value;
}

__global__ void chosen(const int *in, int *out) {
  int further = __shfl_xor(in[threadIdx.x], 32);
  out[threadIdx.x] = threadIdx.x < 16 ? further : 7;
}

__global__ void copied(const int *in, int *out) { // of the even lanes what was never written
  __shared__ int shared[kCount];
  int further = __shfl_xor(in[threadIdx.x], 32);
  if (threadIdx.x & 1)
    shared[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = threadIdx.x < 16 ? further : shared[threadIdx.x];
}

__global__ void scanned(const int *in, int *out) {
  int value = in[threadIdx.x];
  for (unsigned offset = 1; offset < 64; offset *= 2) {
    int before = __shfl_up(value, offset);
    value += threadIdx.x >= offset ? before : 0;
  }
  out[threadIdx.x] = value;
}

__global__ void whole_count(const int *in, int *out) { out[threadIdx.x] = __popcll(__ballot(in[threadIdx.x] > 0)); }

__global__ void both_halves(const int *in, int *out) {
  unsigned half = __ballot(in[threadIdx.x] > 0) >> (threadIdx.x & 32);
  out[threadIdx.x] = __popc(half & ((1u << (threadIdx.x & 31)) - 1));
}

__global__ void whole_wave(const int *in, int *out) {
  int value = in[threadIdx.x];
  for (int offset = warpSize / 2; offset; offset /= 2)
    value += __shfl_xor(value, offset);
  out[threadIdx.x] = value;
}

__global__ void one_bit(const int *in, int *out) {
  if (__ballot(in[threadIdx.x] > 0) & 1)
    out[threadIdx.x] = 1;
}

__global__ void small_group(const int *in, int *out) { // with 32 lanes
  unsigned positive = __ballot(in[threadIdx.x] > 0);
  out[threadIdx.x] = __popc(positive) + (__ballot(in[threadIdx.x] > 1) == 0xffffffffu);
}

__global__ void any_and_all(const int *in, int *out) {
  out[threadIdx.x] = __any(in[threadIdx.x] > 3) + 2 * __all(in[threadIdx.x] > 0) + 4 * (__ballot(1) == ~0ull);
}

int main(int, char **arguments) {
  struct Launch {
    void (*kernel)(const int *, int *);
    int items;
  };
  const std::map<std::string, Launch> launches = {
      {"stored", {stored, 32}},           {"branched", {branched, 32}},
      {"addressed", {addressed, 32}},     {"added", {added, 32}},
      {"counted", {counted, 64}},         {"preceding", {preceding, 64}},
      {"searched", {searched, 64}},       {"compared", {compared, 64}},
      {"active", {active, 64}},           {"guarded", {guarded, 48}},
      {"only_first", {only_first, 48}},   {"chosen", {chosen, 48}},
      {"scanned", {scanned, 48}},         {"whole_count", {whole_count, 48}},
      {"both_halves", {both_halves, 48}}, {"whole_wave", {whole_wave, 64}},
      {"one_bit", {one_bit, 64}},         {"small_group", {small_group, 32}},
      {"any_and_all", {any_and_all, 64}}, {"copied", {copied, 48}},
      {"reduced", {reduced, 64}},         {"last_lane", {last_lane, 64}},
      {"rotated", {rotated, 64}},
  };
  std::vector<int> values(kCount);
  for (int i = 0; i < kCount; ++i)
    values[i] = i + 1;
  int *in = on_device(values), *out = on_device(std::vector<int>(kCount));
  for (char **name = arguments + 1; *name; ++name) {
    const Launch &chosen = launches.at(*name);
    hipLaunchKernelGGL(chosen.kernel, 1, chosen.items, 0, 0, in, out);
    HIP(hipDeviceSynchronize());
  }
  HIP(hipFree(in));
  HIP(hipFree(out));
  std::puts("done");
}
