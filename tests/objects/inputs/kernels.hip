// Needs neither ROCm's headers nor its device libraries, so that any clang with the AMDGPU target compiles it.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

struct dim3 {
  unsigned x, y, z;
};
extern "C" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *); // what kernel stubs call

__device__ int table[4] = {1, 2, 3, 5};
__device__ int *pointer = &table[2]; // one dynamic relocation
__device__ int uninitialized[1000];  // .bss

extern "C" __device__ __attribute__((noinline)) int twice(int x) { return x * 2 + table[x & 3]; }

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
  int i = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
  if (i < n)
    c[i] = a[i] + b[i];
}

extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(1, 64))) void reverse(float *a, char tag, double by) {
  __shared__ float tile[64];
  int i = __builtin_amdgcn_workitem_id_x();
  tile[i] = a[i];
  __builtin_amdgcn_s_barrier();
  a[i] = tile[63 - i] * (float)by + tag;
}

extern "C" __global__ void scratch(int *a, int n) {
  volatile int local[32];
  for (int i = 0; i < n; i++)
    local[(i * 7) & 31] = a[i];
  a[0] = local[n & 31] + twice(n) + *pointer + uninitialized[n];
}
