// Memory of the device, managed, of the host, and of a stream's pool.
#include "check.h"

__global__ void fill(int *device, int *managed, int *host, int *pool) {
  const int i = threadIdx.x;
  device[/*index*/ i] = 1; // uses device
  __syncthreads(); // or the compiler makes a clause of the stores, which has one line
  managed[/*index above*/ i] = 2; // uses managed
  __syncthreads();
  host[/*index above*/ i] = 3; // uses host
  __syncthreads();
  pool[/*index above*/ i] = 4; // uses pool
}

__global__ void add(const int *device, const int *managed, const int *host, const int *pool, int *out) {
  const int i = threadIdx.x;
  int sum = device[/*index*/ i]; // reads device
  __syncthreads();
  sum += managed[/*index above*/ i]; // reads managed
  __syncthreads();
  sum += host[/*index above*/ i]; // reads host
  __syncthreads();
  sum += pool[/*index above*/ i]; // reads pool
  out[/*index above*/ i] = sum; // uses out
}

int main() {
  const int n = 256;
  int *device = nullptr, *managed = nullptr, *host = nullptr, *pool = nullptr, *out = nullptr;
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  HIP(hipMalloc(&out, /*size out*/ n * sizeof(int)));
  HIP(hipMalloc(&device, /*size device*/ n * sizeof(int)));
  HIP(hipMallocManaged(&managed, /*size managed*/ n * sizeof(int)));
  HIP(hipHostMalloc(reinterpret_cast<void **>(&host), /*size host*/ n * sizeof(int), 0));
  HIP(hipMallocAsync(reinterpret_cast<void **>(&pool), /*size pool*/ n * sizeof(int), stream));
  fill<<<1, n>>>(device, managed, host, pool);
  HIP(hipDeviceSynchronize());
  /*early device*/
  /*early managed*/
  /*early host*/
  /*early pool*/
  /*early out*/
  add<<<1, n>>>(device, managed, host, pool, out);
  HIP(hipDeviceSynchronize());
  /*freed device*/ HIP(hipFree(device));
  /*freed managed*/ HIP(hipFree(managed));
  /*freed host*/ HIP(hipHostFree(host));
  /*freed pool*/ HIP(hipFreeAsync(pool, stream));
  /*freed out*/ HIP(hipFree(out));
  HIP(hipStreamDestroy(stream));
}
