// A tool that uses everything the device header offers; compiled by test_end_to_end.py.
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

struct Pair {
  int first;
  float second;
};

__managed__ unsigned long long counter = 5;
__managed__ int managed_table[3] = {1, 2, 3};
__device__ int device_variable = 7;
__constant__ float scale = 2.5f;
static __device__ const short lookup[4] = {1, 10, 100, 1000};
__shared__ int shared[64];

namespace my {
struct Probe {
  static __device__ unsigned long long hits;
  LUTHIER_INTRINSIC_ANNOTATE static int measure(Pair pair) { return luthier::opaque<int>(pair); }
};
__device__ unsigned long long Probe::hits = 1;
LUTHIER_INTRINSIC_ANNOTATE void mark(float4 value) { luthier::opaque<void>(value); }
template <typename T> __device__ T twice(T value) { return value + value; }
} // namespace my

__device__ __attribute__((noinline)) int outlined(int value) { return value * 3 + static_cast<int>(threadIdx.x); }

LUTHIER_HOOK_ANNOTATE everything(int reg, float factor, unsigned char small, unsigned long long mask, int *pointer) {
  using namespace luthier;
  int sum = readReg<int>(VGPR17) + static_cast<int>(readReg<unsigned>(sgpr(3))) + readReg<int>(reg);
  float4 wide = readReg<float4>(vgpr(8));
  uint64_t vcc = readReg<uint64_t>(VCC);
  writeReg(AGPR255, sum);
  writeReg<uint64_t>(VCC, vcc & mask);
  writeReg(VGPR0, wide);
  writeReg(vgpr(4), readReg<Pair>(sgpr(12)));
  writeReg(vgpr(6), readReg<float3>(VGPR200));
  writeReg(vgpr(9), readReg<__half>(VGPR201));
  writeReg(vgpr(10), readReg<bool>(SCC) ? readReg<double>(VGPR202) : 0.0);
  writeReg(vgpr(12), readReg<int *>(VGPR204));
  my::mark(wide);
  sum += my::Probe::measure({reg, factor}) + my::twice(lookup[small & 3]) + outlined(reg) + managed_table[1];
  sum += static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x + __lane_id()) + static_cast<int>(scale) + device_variable;
  shared[threadIdx.x & 63] = sum;
  sAtomicAdd(&counter, mask);
  sAtomicAdd(&my::Probe::hits, mask);
  atomicAdd(pointer, sum);
}

LUTHIER_HOOK_ANNOTATE nothing() {}

LUTHIER_EXPORT_HOOK_HANDLE(everything)
LUTHIER_EXPORT_FUNC(nothing)

__global__ void kernel(int *out) {
  __asm__ volatile("s_nop 0"); // allowed: no hook calls it
  *out = outlined(*out);
}

const void *handle() { return LUTHIER_GET_HOOK_HANDLE(everything); }
