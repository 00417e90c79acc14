// Very many launches, allocations and threads of the host.
#include "check.h"

#include <thread>

__global__ void add(int *values, int amount) { values[threadIdx.x] += amount; }

int main() {
  int *values = on_device(std::vector<int>(64));
  const int launches = 10000;
  for (int i = 0; i < launches; ++i)
    add<<<1, 64>>>(values, 1);
  for (int value : on_host(values, 64))
    EXPECT(value == launches);
  std::vector<int *> buffers(300);
  for (size_t i = 0; i < buffers.size(); ++i) {
    HIP(hipMalloc(&buffers[i], 4096));
    HIP(hipMemset(buffers[i], 0, 4096));
    add<<<1, 64>>>(buffers[i], i);
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT(on_host(buffers[i], 64)[63] == int(i));
    HIP(hipFree(buffers[i]));
  }
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number)
    threads.emplace_back([number] {
      hipStream_t stream;
      HIP(hipStreamCreate(&stream));
      int *mine = on_device(std::vector<int>(64));
      for (int i = 0; i < 200; ++i)
        add<<<1, 64, 0, stream>>>(mine, number);
      HIP(hipStreamSynchronize(stream));
      EXPECT(on_host(mine, 64)[5] == 200 * number);
    });
  for (auto &thread : threads)
    thread.join();
  std::puts("many");
}
