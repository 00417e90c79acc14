// Kernels that go wrong in ways the compiler does not see.
#include <hip/hip_runtime.h>

extern "C" __global__ void undecodable(int *out) {
  if (threadIdx.x == 0)
    asm volatile(".long 0xffffffff");
  out[threadIdx.x] = 1;
}

extern "C" __global__ void unimplemented(int *out) {
#ifdef __GFX10__
  asm volatile("image_load v[0:3], v[4:5], s[0:7] dmask:0xf dim:SQ_RSRC_IMG_2D unorm" ::: "v0", "v1", "v2", "v3");
#endif
  out[threadIdx.x] = 1;
}

extern "C" __global__ void missing_partner(unsigned *flag) {
  // Waves but the last wait at a barrier for one that never comes.
  if (__builtin_amdgcn_readfirstlane(threadIdx.x) + __builtin_amdgcn_wavefrontsize() < blockDim.x)
    __builtin_amdgcn_s_barrier();
  else
    while (__atomic_load_n(flag, __ATOMIC_RELAXED) == 0)
      ;
  flag[1] = 1;
}

extern "C" __global__ void misaligned(char *place) { atomicAdd((unsigned *)place + threadIdx.x, 1u); }

extern "C" __global__ void misaligned_lds(int *out, int skip) {
  __shared__ unsigned cells[64];
  char *place = (char *)cells + skip;
  atomicAdd((unsigned *)place, 1u);
  __syncthreads();
  out[threadIdx.x] = cells[0];
}

extern "C" __global__ void __launch_bounds__(64) small_groups(int *out) { out[threadIdx.x] = 5; }

extern "C" __global__ void kinds(int *pointer, float real, double wide, short narrow, long long whole) {
  pointer[threadIdx.x] = (int)(real + wide) + narrow + (int)whole;
}

extern "C" __global__ void deep_stack(int *out, int index) {
  volatile int here[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  out[threadIdx.x] = here[index];
}
