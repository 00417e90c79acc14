// Managed memory, with advice, prefetches and their queries.
#include <cstdint>
#include <vector>

#include "check.h"

__device__ __managed__ uint32_t total;

__global__ void sum(const uint32_t *values, uint32_t count) {
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count)
    atomicAdd(&total, values[index]);
}

__global__ void fill(uint32_t *values, uint32_t count, uint32_t what) {
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count)
    values[index] = what;
}

int main() {
  const uint32_t count = 1 << 16;
  const size_t size = count * sizeof(uint32_t);
  uint32_t *values = nullptr;
  HIP(hipMallocManaged(&values, size));
  for (uint32_t index = 0; index < count; ++index)
    values[index] = index % 7;
  uint32_t expected = 0;
  for (uint32_t index = 0; index < count; ++index)
    expected += values[index];
  total = 0;
  sum<<<count / 256, 256>>>(values, count);
  HIP(hipDeviceSynchronize());
  std::printf("sum: %s\n", total == expected ? "right" : "wrong");

  HIP(hipMemAdvise(values, size, hipMemAdviseSetPreferredLocation, 0));
  HIP(hipMemAdvise(values, size / 2, hipMemAdviseSetReadMostly, 0)); // a part of it
  HIP(hipMemPrefetchAsync(values, size, 0, nullptr));
  HIP(hipDeviceSynchronize());
  int preferred = -2, prefetched = -2, mostly = -2;
  HIP(hipMemRangeGetAttribute(&preferred, 4, hipMemRangeAttributePreferredLocation, values, size));
  HIP(hipMemRangeGetAttribute(&prefetched, 4, hipMemRangeAttributeLastPrefetchLocation, values, size));
  HIP(hipMemRangeGetAttribute(&mostly, 4, hipMemRangeAttributeReadMostly, values, size / 2));
  std::printf("preferred %d, prefetched %d, read mostly %d\n", preferred, prefetched, mostly);
  HIP(hipMemAdvise(values, size / 2, hipMemAdviseUnsetReadMostly, 0));

  fill<<<count / 256, 256>>>(values, count, 3);
  HIP(hipDeviceSynchronize());
  std::vector<uint32_t> back(count);
  HIP(hipMemcpy(back.data(), values, size, hipMemcpyDeviceToHost)); // over the border of what was advised
  uint32_t wrong = 0;
  for (uint32_t index = 0; index < count; ++index)
    wrong += back[index] != 3 || values[index] != 3;
  std::printf("filled: %u wrong\n", wrong);
  HIP(hipFree(values));
}
