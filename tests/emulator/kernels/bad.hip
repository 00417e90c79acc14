// Kernels that go wrong in ways the compiler does not see.
#include <hip/hip_runtime.h>

extern "C" __global__ void undecodable(int *out) {
  if (threadIdx.x == 0)
    asm volatile(".long 0xffffffff");
  out[threadIdx.x] = 1;
}

extern "C" __global__ void unimplemented(int *out) {
#ifdef __GFX10__
  asm volatile("image_get_resinfo v[0:3], v4, s[0:7] dmask:0xf dim:SQ_RSRC_IMG_2D" ::: "v0", "v1", "v2", "v3");
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

// Loops that no condition ends, with and without anything that lets others run.
extern "C" __global__ void endless_barriers(int *out) {
  while (((volatile int *)out)[0] == 0)
    __syncthreads();
}

extern "C" __global__ void endless_jumps(int *out) {
  asm volatile("s_getpc_b64 s[20:21]\n"
               "s_setpc_b64 s[20:21]" ::
                   : "s20", "s21");
  out[0] = 1;
}

extern "C" __global__ void endless_sleep(volatile int *out) {
  while (out[0] == 0)
    __builtin_amdgcn_s_sleep(10);
}

extern "C" __global__ void long_sleep(volatile int *out, int count) {
  for (int i = 0; i < count; ++i)
    __builtin_amdgcn_s_sleep(10);
  out[0] = count;
}

extern "C" __global__ void into_the_middle(int *out) {
  // The address 4 bytes into an instruction of 8.
  asm volatile("s_getpc_b64 s[20:21]\n"
               "s_add_u32 s20, s20, 24\n"
               "s_addc_u32 s21, s21, 0\n"
               "s_setpc_b64 s[20:21]\n"
               "s_nop 0\n"
               "s_nop 0\n"
               "s_mov_b32 s22, 0x12345678" ::
                   : "s20", "s21", "s22", "scc");
  out[0] = 1;
}

extern "C" __global__ void count_down(int *out, int n) {
  for (int i = n; i > 0; --i)
    ((volatile int *)out)[threadIdx.x] = i;
}

__device__ int kept = 3;
extern "C" __global__ void read_kept(int *out) { out[threadIdx.x] = kept; }
