// Float atomics on memory of every kind, of which hardware may not perform those on fine-grained memory.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "check.h"

constexpr int kCount = 64;

// The hardware's own float atomic; where HIP has none, by name.
__device__ void hardware(float *place) {
#if defined(__gfx908__)
  asm volatile("global_atomic_add_f32 %0, %1, off\n s_waitcnt vmcnt(0)" ::"v"(place), "v"(1.0f) : "memory");
#elif defined(__gfx1030__)
  asm volatile("global_atomic_fmax %0, %1, off\n s_waitcnt_vscnt null, 0x0" ::"v"(place), "v"(1.0f * kCount)
               : "memory");
#else
  unsafeAtomicAdd(place, 1.0f);
#endif
}

__global__ void floats(float *out) { hardware(out); } // line: floats

__global__ void doubles(double *out) { unsafeAtomicAdd(out, 1.0); } // line: doubles

__global__ void safe(float *out) { safeAtomicAdd(out, 1.0f); }

__global__ void standard(float *out) { atomicAdd(out, 1.0f); } // line: standard

__global__ void integers(int *out) { atomicAdd(out, 1); }

__global__ void in_lds(float *out) {
  __shared__ float sum;
  if (!threadIdx.x)
    sum = 0;
  __syncthreads();
  atomicAdd(&sum, 1.0f);
  __syncthreads();
  if (!threadIdx.x)
    *out = sum;
}

struct Memory {
  std::string kind;
  void *address = nullptr;
  explicit Memory(const std::string &kind) : kind(kind) {
    constexpr size_t size = 1000;
    if (kind == "device")
      HIP(hipMalloc(&address, size));
    else if (kind == "host")
      HIP(hipHostMalloc(&address, size, hipHostMallocDefault)); // line: host
    else if (kind == "coarse")
      HIP(hipHostMalloc(&address, size, hipHostMallocNonCoherent));
    else if (kind == "managed")
      HIP(hipMallocManaged(&address, size)); // line: managed
    else if (kind == "advised") {
      HIP(hipMallocManaged(&address, size));
      HIP(hipMemAdvise(address, size, hipMemAdviseSetCoarseGrain, 0));
    } else if (kind == "fine")
      HIP(hipExtMallocWithFlags(&address, size, hipDeviceMallocFinegrained)); // line: fine
    else if (kind == "registered")
      HIP(hipHostRegister(address = aligned_alloc(4096, 4096), 4096, hipHostRegisterDefault));
    HIP(hipMemset(address, 0, sizeof(double)));
  }
  ~Memory() {
    if (kind == "registered")
      HIP(hipHostUnregister(address));
    else if (kind == "host" || kind == "coarse")
      HIP(hipHostFree(address));
    else
      HIP(hipFree(address));
  }
};

template <typename Number> void run(void (*kernel)(Number *), const Memory &memory) {
  void *seen = memory.address;
  if (memory.kind == "registered")
    HIP(hipHostGetDevicePointer(&seen, memory.address, 0));
  kernel<<<1, kCount>>>(static_cast<Number *>(seen));
  HIP(hipDeviceSynchronize());
  Number sum = 0;
  HIP(hipMemcpy(&sum, memory.address, sizeof sum, hipMemcpyDefault));
  EXPECT(sum == kCount);
}

int main(int, char **arguments) {
  const std::string kernel = arguments[2];
  const Memory memory(arguments[1]);
  if (kernel == "floats")
    run(floats, memory);
  else if (kernel == "doubles")
    run(doubles, memory);
  else if (kernel == "safe")
    run(safe, memory);
  else if (kernel == "standard")
    run(standard, memory);
  else if (kernel == "integers")
    run(integers, memory);
  else
    run(in_lds, memory);
  std::puts("done");
}
