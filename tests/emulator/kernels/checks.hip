// Kernels that use memory wrongly, and ones that only look like it.
#include <hip/hip_runtime.h>

extern "C" __global__ void sum_of_two(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = in[i] + in[i + 1];
}

extern "C" __global__ void bytes_only(unsigned char *bytes, int *out) {
  // Writes two of four bytes; the dword is read if `out` is given.
  bytes[4 * threadIdx.x] = 1;
  bytes[4 * threadIdx.x + 3] = 2;
  if (out)
    out[threadIdx.x] = *(volatile int *)(bytes + 4 * threadIdx.x);
}

extern "C" __global__ void count_up(unsigned *cells) { atomicAdd(&cells[threadIdx.x & 3], 1u); }

extern "C" __global__ void read_uniform(const int *in, int *out) { out[threadIdx.x] = in[blockIdx.x]; }

extern "C" __global__ void load_and_store(int *cells, int *out, int rounds, int by_lanes, int writer, int at) {
  // All waves read eight dwords by scalar loads, of the arguments without `cells`; then one lane stores to one of them.
  using Constant = const __attribute__((address_space(4))) int;
  if (!cells)
    cells = (int *)__builtin_amdgcn_kernarg_segment_ptr();
  Constant *constants = (Constant *)cells;
  int sum = constants[0] + constants[1] + constants[2] + constants[3];
  if (by_lanes)
    sum += *(volatile int *)&cells[threadIdx.x & 7];
  for (int round = 0; round < rounds; ++round)
    sum += constants[4 + (round >> 1)];
  const int item = blockIdx.x * blockDim.x + threadIdx.x;
  out[item] = sum;
  if (item == writer)
    *(volatile int *)&cells[at] = sum;
}

extern "C" __global__ void half_written(int *out, int written) {
  __shared__ int shared[256];
  if ((int)threadIdx.x < written)
    shared[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x ^ 1];
}

extern "C" __global__ void neighbours(int *out, int barrier) {
  // Reads what another work-item wrote; waves race at their borders unless there is a barrier.
  __shared__ int shared[257];
  shared[threadIdx.x] = threadIdx.x;
  if (threadIdx.x == 0)
    shared[256] = -1;
  if (barrier)
    __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x + 1];
}

extern "C" __global__ void turned(int *out, int barrier) {
  // Reads what another wave wrote, by plain instructions.
  __shared__ int shared[256];
  shared[threadIdx.x] = threadIdx.x;
  if (barrier)
    __syncthreads();
  out[threadIdx.x] = shared[255 - threadIdx.x];
}

extern "C" __global__ void anti(int *out) {
  // The second write needs a barrier against the reads.
  __shared__ int shared[256];
  shared[threadIdx.x] = threadIdx.x;
  __syncthreads();
  int value = shared[255 - threadIdx.x];
  shared[threadIdx.x] = value;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x ^ 1];
}

extern "C" __global__ void histogram_lds(const unsigned *in, unsigned *out, int atomic) {
  __shared__ unsigned bins[8];
  if (threadIdx.x < 8)
    bins[threadIdx.x] = 0;
  __syncthreads();
  unsigned bin = in[threadIdx.x] % 8;
  if (atomic)
    atomicAdd(&bins[bin], 1u);
  else
    bins[bin] = bins[bin] + 1;
  __syncthreads();
  if (threadIdx.x < 8)
    out[threadIdx.x] = bins[threadIdx.x];
}

extern "C" __global__ void flat_place(int *memory, int *out, int pick) {
  // A pointer that is into LDS in some lanes only: FLAT instructions.
  __shared__ int shared[64];
  if (threadIdx.x < 32)
    shared[threadIdx.x] = 7;
  __syncthreads();
  int *place = (int)threadIdx.x >= pick ? memory + threadIdx.x : shared + threadIdx.x;
  out[threadIdx.x] = *(volatile int *)place;
}

typedef __attribute__((address_space(3))) int lds_int;

extern "C" __global__ void beyond_lds(int *out, unsigned beyond) {
  // Work-items from the 64th on are `beyond` bytes off their cells.
  __shared__ int shared[256];
  // With generic pointers these would be FLAT accesses.
  volatile lds_int *cell = (lds_int *)shared + threadIdx.x + (threadIdx.x < 64 ? 0 : beyond / 4);
  *cell = threadIdx.x;
  out[threadIdx.x] = *cell;
}

extern "C" __global__ void sums(const float *a, const float *b, float *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = a[at] + b[at];
}

struct Step {
  int actor, width, writes, offset, from, barrier;
};

template <typename T> static __device__ void access(char *bytes, const Step &step) {
  volatile T *const place = (T *)(bytes + step.offset) + threadIdx.x % 64;
  if (step.writes)
    *place = T(threadIdx.x + blockIdx.x * 1000); // values of two work-items differ
  else
    (void)*place;
}

extern "C" __global__ void in_steps(char *bytes, const Step *steps, int count) {
  // In each step some of 64 work-items access consecutive elements, of any alignment.
  typedef int pair __attribute__((ext_vector_type(2)));
  typedef int four __attribute__((ext_vector_type(4)));
  for (int at = 0; at < count; ++at) {
    const Step step = steps[at];
    if ((int)threadIdx.x / 64 == step.actor && (int)threadIdx.x % 64 >= step.from)
      switch (step.width) {
      case 1: access<unsigned char>(bytes, step); break;
      case 2: access<unsigned short>(bytes, step); break;
      case 4: access<int>(bytes, step); break;
      case 8: access<pair>(bytes, step); break;
      default: access<four>(bytes, step); break;
      }
    if (step.barrier)
      __syncthreads();
  }
}
