// Two streams that wait for each other by events; times of events; a callback; copies that do not block.
#include "check.h"

#include <atomic>

__global__ void add(int *values, int amount, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    for (int turn = 0; turn < 20; ++turn)
      values[i] += amount;
}

static std::atomic<int> called{0};

int main() {
  const int n = 1 << 16;
  int *host = nullptr, *device = nullptr;
  HIP(hipHostMalloc(reinterpret_cast<void **>(&host), n * sizeof(int), 0));
  HIP(hipMalloc(&device, n * sizeof(int)));
  for (int i = 0; i < n; ++i)
    host[i] = i;
  hipStream_t first, second;
  hipEvent_t begin, middle, end;
  HIP(hipStreamCreate(&first));
  HIP(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
  HIP(hipEventCreate(&begin));
  HIP(hipEventCreate(&middle));
  HIP(hipEventCreate(&end));
  HIP(hipEventRecord(begin, first));
  HIP(hipMemcpyAsync(device, host, n * sizeof(int), hipMemcpyHostToDevice, first));
  add<<<16, 256, 0, first>>>(device, 1, n);
  HIP(hipEventRecord(middle, first));
  HIP(hipStreamWaitEvent(second, middle, 0));
  add<<<16, 256, 0, second>>>(device, 10, n);
  HIP(hipMemcpyAsync(host, device, n * sizeof(int), hipMemcpyDeviceToHost, second));
  HIP(hipStreamAddCallback(
      second, [](hipStream_t, hipError_t status, void *) { called = status == hipSuccess ? 1 : 2; }, nullptr, 0));
  HIP(hipEventRecord(end, second));
  HIP(hipStreamSynchronize(second));
  HIP(hipEventSynchronize(end));
  for (int i = 0; i < n; ++i)
    EXPECT(host[i] == i + 20 + 200);
  float all = 0, part = 0;
  HIP(hipEventElapsedTime(&all, begin, end));
  HIP(hipEventElapsedTime(&part, begin, middle));
  EXPECT(part > 0 && all > part && all < 60000);
  HIP(hipDeviceSynchronize());
  EXPECT(called == 1);
  EXPECT(hipStreamQuery(first) == hipSuccess);
  std::puts("streams");
}
