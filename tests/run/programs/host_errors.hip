// What the host does wrong with HIP, one thing a run. Without one, everything is as it should be.
#include "check.h"

#include <chrono>
#include <cstring>
#include <thread>

__global__ void __launch_bounds__(64) small(int *out) { out[threadIdx.x] = 1; }

__global__ void tile(int *out) {
  extern __shared__ int dynamic[];
  __shared__ int own[256];
  own[threadIdx.x] = dynamic[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = own[threadIdx.x ^ 1] + dynamic[threadIdx.x ^ 1];
}

__global__ void waits(volatile int *flag) {
  while (*flag == 0)
    __builtin_amdgcn_s_sleep(1);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "none";
  const auto is = [&](const char *other) { return !std::strcmp(what, other); };
  const int n = 1000;
  int *data = nullptr;
  std::vector<int> host(n + 50);
  HIP(hipMalloc(&data, n * sizeof(int)));
  HIP(hipMemset(data, 0, n * sizeof(int)));
  small<<<1, 64>>>(data);
  HIP(hipGetLastError());
  if (is("error"))
    (void)hipMemcpy(nullptr, host.data(), 4, hipMemcpyHostToDevice); // line: error
  if (is("unseen")) {
    small<<<1, 2048>>>(data); // line: unseen
    small<<<1, 64>>>(data);
  }
  if (is("unseen at the end"))
    small<<<1, 2048>>>(data); // line: unseen at the end
  if (is("items"))
    small<<<2, 128>>>(data); // line: items
  if (is("lds"))
    tile<<<1, 256, 80 << 10>>>(data); // line: lds
  if (is("grid"))
    small<<<dim3(1 << 26, 3), 64>>>(data); // line: grid
  if (is("cooperative")) {
    void *given[] = {&data};
    const auto *kernel = reinterpret_cast<const void *>(small);
    (void)hipLaunchCooperativeKernel(kernel, 1, dim3(64, 32), given, 0, nullptr); // line: cooperative
    EXPECT(hipGetLastError() != hipSuccess);                                      // telling has not hidden it
  }
  if (is("cooperative grid")) {
    void *given[] = {&data};
    const auto *kernel = reinterpret_cast<const void *>(small);
    (void)hipLaunchCooperativeKernel(kernel, 1 << 20, 64, given, 0, nullptr); // line: cooperative grid
  }
#if HIP_VERSION_MAJOR >= 6
  if (std::strstr(what, "of a module")) {
    hipModule_t module;
    hipFunction_t function;
    HIP(hipModuleLoad(&module, argv[2]));
    HIP(hipModuleGetFunction(&function, module, "_Z5smallPi"));
    void *given[] = {&data};
    const unsigned groups = is("groups of a module") ? 1 << 20 : 1, items = is("items of a module") ? 2048 : 64;
    (void)hipModuleLaunchCooperativeKernel(function, groups, 1, 1, items, 1, 1, 0, nullptr, given); // line: of a module
    HIP(hipDeviceSynchronize());
  }
#endif
  if (is("seen")) {
    small<<<1, 2048>>>(data);
    EXPECT(hipGetLastError() != hipSuccess);
  }
  if (is("copy"))
    (void)hipMemcpy(data, host.data(), (n + 10) * sizeof(int), hipMemcpyHostToDevice); // line: copy
  if (is("copy back"))
    (void)hipMemcpy(host.data(), data + 20, n * sizeof(int), hipMemcpyDeviceToHost); // line: copy back
  if (is("direction"))
    (void)hipMemcpy(host.data(), data + 20, 40, hipMemcpyHostToDevice); // line: direction
  if (is("fill"))
    (void)hipMemset(data + n - 1, 0, 8); // line: fill
  if (std::strstr(what, "arguments")) {
    hipModule_t module;
    hipFunction_t function;
    HIP(hipModuleLoad(&module, argv[2]));
    HIP(hipModuleGetFunction(&function, module, "_Z5smallPi"));
    for (int turn = 0; turn < 3; ++turn) {
      const bool all = is("all arguments") || (is("late arguments") && turn == 0);
      size_t size = all ? sizeof data : sizeof data / 2;
      void *given[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &data, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                       HIP_LAUNCH_PARAM_END};
      HIP(hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, given)); // line: arguments
    }
    HIP(hipDeviceSynchronize());
    HIP(hipModuleUnload(module));
  }
  HIP(hipDeviceSynchronize());
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  int *flag = nullptr;
  HIP(hipHostMalloc(reinterpret_cast<void **>(&flag), sizeof(int), hipHostMallocCoherent));
  *flag = 0;
  waits<<<1, 1, 0, stream>>>(flag);
  std::thread later([&] {
    if (is("busy"))
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    *static_cast<volatile int *>(flag) = 1;
  });
  if (!is("busy"))
    HIP(hipStreamSynchronize(stream));
  HIP(hipStreamDestroy(stream)); // line: busy
  later.join();
  HIP(hipDeviceSynchronize());
  HIP(hipFree(data));
  if (is("freed"))
    (void)hipMemset(data, 0, 4); // line: freed
  std::puts("done");
}
