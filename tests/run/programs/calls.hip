// Calls of the API that fail, from several threads, and in a child.
#include "check.h"

#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

__global__ void add(int *values, int amount) { values[threadIdx.x] += amount; }

__global__ void nothing() {}

static void work(int amount) {
  int *values = on_device(std::vector<int>(64));
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  for (int i = 0; i < 20; ++i)
    add<<<1, 64, 0, stream>>>(values, amount);
  HIP(hipStreamSynchronize(stream));
  EXPECT(on_host(values, 64)[7] == 20 * amount);
  HIP(hipStreamDestroy(stream));
  HIP(hipFree(values));
}

// The call that initialises HIP.
static void begin(const char *call) {
  void *place = nullptr;
  hipStream_t stream;
  hipDeviceProp_t properties;
  int value = 0;
  if (!std::strcmp(call, "hipMalloc"))
    HIP(hipMalloc(&place, 256));
  else if (!std::strcmp(call, "hipFree"))
    HIP(hipFree(nullptr));
  else if (!std::strcmp(call, "hipSetDevice"))
    HIP(hipSetDevice(0));
  else if (!std::strcmp(call, "hipStreamCreate"))
    HIP(hipStreamCreate(&stream));
  else if (!std::strcmp(call, "hipDeviceSynchronize"))
    HIP(hipDeviceSynchronize());
  else if (!std::strcmp(call, "hipGetDeviceProperties"))
    HIP(hipGetDeviceProperties(&properties, 0));
  else if (!std::strcmp(call, "hipDriverGetVersion"))
    HIP(hipDriverGetVersion(&value));
  else if (!std::strcmp(call, "hipLaunchKernel"))
    nothing<<<1, 1>>>();
}

__global__ void stay(volatile int *flag) {
  while (!*flag)
    ;
}

int main(int count, char **arguments) {
  const pid_t child = count > 1 && !std::strcmp(arguments[1], "fork") ? fork() : -1;
  if (count > 1)
    begin(arguments[1]);
  int devices = 0;
  HIP(hipGetDeviceCount(&devices));
  EXPECT(hipSetDevice(99) == hipErrorInvalidDevice);
  EXPECT(hipGetLastError() == hipErrorInvalidDevice);
  std::vector<std::thread> threads;
  for (int number = 1; number <= 3; ++number)
    threads.emplace_back(work, number);
  for (auto &thread : threads)
    thread.join();
  if (count > 1 && !std::strcmp(arguments[1], "die")) {
    int *flag = nullptr;
    HIP(hipHostMalloc(reinterpret_cast<void **>(&flag), sizeof *flag, 0));
    *flag = 0;
    stay<<<1, 1>>>(flag);
    std::thread([] {
      usleep(300000);
      raise(SIGKILL);
    }).detach();
    HIP(hipDeviceSynchronize());
  }
  if (child == 0)
    return 0;
  int status = 0;
  if (child > 0)
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
  std::puts("calls");
}
