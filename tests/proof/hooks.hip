// What the proof's tools run. Each row of `counts` and `sums` is a site's, or what a tool says.
#include <luthier/channel.h>
__device__ unsigned long long sums[8192], counts[8192];
__device__ inline unsigned long long mixed(unsigned long long x) {
  x = (x + 1) * 0x9E3779B97F4A7C15ull;
  return x ^ x >> 31;
}
__device__ inline void add(uint32_t row, unsigned long long value) {
  atomicAdd(&counts[row], 1ull);
  atomicAdd(&sums[row], mixed(value));
}
LUTHIER_HOOK_ANNOTATE wave(uint32_t row) { luthier::sAtomicAdd<uint64_t>((uint64_t *)&counts[row], 1); }
LUTHIER_HOOK_ANNOTATE plain() { luthier::sAtomicAdd<uint64_t>((uint64_t *)&counts[0], 1); }
LUTHIER_HOOK_ANNOTATE lane(uint32_t row) { atomicAdd(&counts[row], 1ull); }
LUTHIER_HOOK_ANNOTATE see(uint32_t value, uint32_t row) { add(row, value); }
LUTHIER_HOOK_ANNOTATE see_wide(uint64_t value, uint32_t row) { add(row, value); }
LUTHIER_HOOK_ANNOTATE address(uint64_t value, uint32_t row) { add(row, value); }
LUTHIER_HOOK_ANNOTATE short_address(uint32_t value, uint32_t row) { add(row, value); }
LUTHIER_HOOK_ANNOTATE branch(bool taken, uint32_t row) {
  luthier::sAtomicAdd<uint64_t>((uint64_t *)&counts[row], taken);
}
LUTHIER_HOOK_ANNOTATE launched(uint32_t group, uint32_t row) {
  add(row, group * 1000003ull + threadIdx.x + 1024 * threadIdx.y + (threadIdx.z << 20) + (uint64_t(blockDim.x) << 32) +
               (uint64_t(gridDim.y) << 48));
}
__device__ __attribute__((noinline)) uint32_t folded(const uint32_t *values, uint32_t count) {
  return count == 0 ? 1 : values[count - 1] * 3 + folded(values, count - 1) * 5;
}
LUTHIER_HOOK_ANNOTATE deep(uint32_t value, uint32_t row) {
  uint32_t values[6];
  for (uint32_t k = 0; k < 6; k++)
    values[(k + value % 6) % 6] = value ^ k;
  add(row, folded(values, value % 6 + 1));
}
struct Record {
  uint32_t row, value;
};
LUTHIER_RECORD(Record, row, value)
__device__ luthier::channel<Record> records{1024};
LUTHIER_HOOK_ANNOTATE push(uint32_t value, uint32_t row) { records.push(Record{row, value}); }
/// Called where it is large: many instructions.
LUTHIER_HOOK_ANNOTATE large(uint32_t value, uint32_t row) {
  unsigned long long x = value;
  for (uint32_t round = 0; round < 4; ++round)
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9ull + round;
  add(row, x);
}
/// 28 vector registers at least.
LUTHIER_HOOK_ANNOTATE wide(uint32_t value, uint32_t row) {
  uint32_t part[28], sum = 0;
  for (uint32_t k = 0; k < 28; ++k)
    part[k] = value * (k + 3) ^ (value >> k);
  for (uint32_t k = 0; k < 28; ++k)
    sum = sum * 3 + part[k * 5 % 28] * part[k * 11 % 28];
  add(row, sum);
}
LUTHIER_HOOK_ANNOTATE turn(uint64_t mask) { luthier::writeExec(__builtin_amdgcn_read_exec() ^ mask); }
static __shared__ uint32_t ran[64];
__device__ inline uint32_t wave_number() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / warpSize;
}
LUTHIER_HOOK_ANNOTATE begin() { ran[wave_number()] = 0; }
LUTHIER_HOOK_ANNOTATE tick(uint32_t weight) {
  if (__lane_id() == __ffsll(__ballot(1)) - 1) {
    uint32_t wave = wave_number();
    ran[wave] += weight;
    counts[64 * (blockIdx.x + gridDim.x * blockIdx.y) + wave] = ran[wave];
  }
}
