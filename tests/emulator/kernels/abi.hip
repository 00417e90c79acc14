// What a kernel finds when it starts, written down.
#include <hip/hip_runtime.h>

#ifndef HIDDEN_WORDS
#define HIDDEN_WORDS 52 // of code objects since version 5
#endif

typedef unsigned u32;
typedef unsigned long long u64;
typedef __attribute__((address_space(4))) const u32 constant;
extern "C" __device__ u64 dispatch_id() __asm("llvm.amdgcn.dispatch.id");

// The dispatch packet (16 words), pointers, the hidden arguments (64 words).
extern "C" __global__ void launch_state(u32 *out, u64 *pointers) {
  __shared__ u32 shared[8];
  extern __shared__ u32 dynamic[];
  shared[threadIdx.x & 7] = threadIdx.x;
  dynamic[0] = 1;
  __syncthreads();
  if (threadIdx.x | threadIdx.y | threadIdx.z)
    return;
  constant *packet = (constant *)__builtin_amdgcn_dispatch_ptr();
  constant *hidden = (constant *)__builtin_amdgcn_implicitarg_ptr();
  constant *queue = (constant *)__builtin_amdgcn_queue_ptr();
  for (int i = 0; i < 16; ++i)
    out[i] = packet[i];
  for (int i = 0; i < HIDDEN_WORDS; ++i)
    out[16 + i] = hidden[i];
  pointers[0] = (u64)__builtin_amdgcn_kernarg_segment_ptr();
  pointers[1] = (u64)queue;
  pointers[2] = (u64)&shared[0];
  pointers[3] = dispatch_id();
  pointers[4] = *(const u32 *)((u64)packet[8] | (u64)packet[9] << 32); // the descriptor's first word: static LDS
  pointers[5] = __builtin_amdgcn_groupstaticsize();
  volatile u32 local = 7;
  pointers[6] = (u64)&local;
  pointers[7] = (u64)queue[16] << 32 | queue[17];
}

// Ids of which some are not asked for, whatever the launch's dimensions.
extern "C" __global__ void ids_x(u32 *out) {
  atomicAdd(&out[(__builtin_amdgcn_workgroup_id_x() * 16 + threadIdx.x)], 1u);
}
extern "C" __global__ void ids_y(u32 *out) {
  atomicAdd(&out[(__builtin_amdgcn_workgroup_id_y() * 16 + threadIdx.y)], 1u);
}
extern "C" __global__ void ids_z(u32 *out) {
  atomicAdd(&out[(__builtin_amdgcn_workgroup_id_z() * 16 + threadIdx.z)], 1u);
}
extern "C" __global__ void ids_all(u32 *out) {
  u32 x = blockIdx.x * blockDim.x + threadIdx.x;
  u32 y = blockIdx.y * blockDim.y + threadIdx.y;
  u32 z = blockIdx.z * blockDim.z + threadIdx.z;
  u32 wide = gridDim.x * blockDim.x, high = gridDim.y * blockDim.y;
  out[(z * high + y) * wide + x] = x | y << 8 | z << 16 | (gridDim.z * 16 + blockDim.y) << 24;
}

// Pointers of which only the launch knows what they point to.
__device__ __attribute__((noinline)) void raise(u32 *place, u32 *kind) {
  *place += 1;
  *kind = __builtin_amdgcn_is_shared((__attribute__((address_space(0))) void *)place)
              ? 1
              : __builtin_amdgcn_is_private((__attribute__((address_space(0))) void *)place) ? 2 : 3;
}
extern "C" __global__ void spaces(u32 *out, u32 *memory) {
  __shared__ u32 shared[256];
  u32 local[4] = {threadIdx.x, 20, 30, 40};
  shared[threadIdx.x] = threadIdx.x * 5;
  memory[threadIdx.x] = threadIdx.x * 7;
  u32 kinds[3];
  raise(&shared[threadIdx.x], &kinds[0]);
  raise(&local[threadIdx.x & 3], &kinds[1]);
  raise(&memory[threadIdx.x], &kinds[2]);
  u32 *mixed = threadIdx.x % 3 == 0 ? &shared[threadIdx.x] : threadIdx.x % 3 == 1 ? &local[1] : &memory[threadIdx.x];
  u32 kind;
  raise(mixed, &kind);
  u32 *o = out + threadIdx.x * 6;
  o[0] = shared[threadIdx.x], o[1] = local[threadIdx.x & 3], o[2] = memory[threadIdx.x];
  o[3] = kinds[0] | kinds[1] << 4 | kinds[2] << 8, o[4] = kind, o[5] = *mixed;
}

// Stacks: recursion through a pointer, whose depth no compiler knows, with frames of different sizes.
typedef u32 (*step)(u32, u32);
__device__ step table[2];
__device__ __attribute__((noinline)) u32 left(u32 n, u32 x) {
  volatile u32 frame[5] = {n, x, n + x, 1, 2};
  return n == 0 ? frame[1] : table[x & 1](n - 1, frame[2] * 3 + 1) + frame[0];
}
__device__ __attribute__((noinline)) u32 right(u32 n, u32 x) {
  volatile u32 frame[9] = {n, x, n ^ x, 1, 2, 3, 4, 5, 6};
  return n == 0 ? frame[2] : table[n & 1](n - 1, frame[1] / 2 + frame[6]) ^ frame[0];
}
extern "C" __global__ void stacks(const u32 *in, u32 *out) {
  table[0] = left, table[1] = right;
  __syncthreads();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = table[i & 1](in[i] & 31, in[i]);
}
extern "C" __global__ void endless_stack(u32 *out) {
  table[0] = table[1] = left;
  __syncthreads();
  out[threadIdx.x] = table[0](1u << 30, threadIdx.x);
}
// An array whose size only the launch knows.
extern "C" __global__ void dynamic_array(u32 *out, u32 n) {
  u32 *cells = (u32 *)__builtin_alloca(4 * n);
  for (u32 i = 0; i < n; ++i)
    cells[i] = i * threadIdx.x;
  u32 sum = 0;
  for (u32 i = 0; i < n; ++i)
    sum = sum * 3 + cells[(i * 7) % n];
  out[threadIdx.x] = sum;
}
