// What bench_run.py measures.
#include <hip/hip_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

__global__ void empty_kernel(volatile int *begun) {
  if (begun)
    *begun = 1;
}

__global__ void long_kernel(float *out, int turns) {
  float x = threadIdx.x;
  for (int i = 0; i < turns; ++i)
    x = fminf(x * 1.0001f + 0.5f, 1000.0f);
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

template <int Number> __global__ void numbered_kernel(float *data) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = data[i];
#pragma unroll
  for (int step = 0; step < 72; ++step)
    x = fmaf(x, 1.0f + (Number + 1) * step, data[(i + 64 * step) & 16383]);
  data[i] = x;
}

// Launch different kernels of about 500 instructions, each four times.
template <int... Number> static void launch_different(float *data, std::integer_sequence<int, Number...>) {
  for (int turn = 0; turn < 4; ++turn)
    (numbered_kernel<Number><<<64, 256>>>(data), ...);
  (void)hipDeviceSynchronize();
}

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of CPU time of all threads whose name begins with "luthier".
static double device_time() {
  double sum = 0;
  DIR *tasks = opendir("/proc/self/task");
  while (const dirent *entry = readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + entry->d_name;
    std::string name;
    std::ifstream(folder + "/comm") >> name;
    double nanoseconds = 0;
    if (name.rfind("luthier", 0) == 0 && std::ifstream(folder + "/schedstat") >> nanoseconds)
      sum += nanoseconds * 1e-9;
  }
  closedir(tasks);
  return sum;
}

int main(int, char **arguments) {
  float *out = nullptr;
  int *begun = nullptr;
  (void)hipMalloc(&out, 1 << 16);
  (void)hipHostMalloc(reinterpret_cast<void **>(&begun), sizeof(int), hipHostMallocCoherent);
  for (int i = 0; i < 100; ++i) {
    empty_kernel<<<1, 64>>>(nullptr);
    (void)hipDeviceSynchronize();
  }
  if (!std::strcmp(arguments[1], "launches")) {
    const int count = 2000;
    double began = now();
    for (int i = 0; i < count; ++i) {
      empty_kernel<<<1, 64>>>(nullptr);
      (void)hipDeviceSynchronize();
    }
    std::printf("synchronous %.3f\n", (now() - began) / count * 1e6);
    began = now();
    for (int i = 0; i < count; ++i)
      empty_kernel<<<1, 64>>>(nullptr);
    (void)hipDeviceSynchronize();
    std::printf("queued %.3f\n", (now() - began) / count * 1e6);
    double times[101];
    for (double &time : times) {
      *static_cast<volatile int *>(begun) = 0;
      began = now();
      empty_kernel<<<1, 64>>>(begun);
      while (!*static_cast<volatile int *>(begun))
        ;
      time = (now() - began) * 1e6;
      (void)hipDeviceSynchronize();
    }
    std::sort(times, times + 101);
    std::printf("start %.3f\n", times[50]);
  }
  if (!std::strcmp(arguments[1], "different"))
    launch_different(out, std::make_integer_sequence<int, 36>());
  if (!std::strcmp(arguments[1], "long")) {
    long_kernel<<<8, 256>>>(out, 10);
    (void)hipDeviceSynchronize();
    const double before = device_time();
    long_kernel<<<8, 256>>>(out, std::atoi(arguments[2]));
    (void)hipDeviceSynchronize();
    std::printf("cpu %.3f\n", device_time() - before);
  }
}
