// Kernels of modules that are compiled late call functions of the program by pointers, as libraries do with callbacks.
#include "check.h"

#include <hip/hiprtc.h>
#include <unistd.h>
#include <string>

using Function = int (*)(int);

__device__ __noinline__ int collatz(int value) { // has a loop, and is called in its own object
  int steps = 0;
  while (value > 1) {
    value = value % 2 ? 3 * value + 1 : value / 2;
    ++steps;
  }
  return steps;
}

__device__ int twice(int value) { return 2 * value; }
__device__ int steps_and_one(int value) { return collatz(value) + 1; }
__device__ Function functions[2] = {twice, steps_and_one};

int main(int count, char **words) {
  hipDeviceProp_t properties;
  HIP(hipGetDeviceProperties(&properties, 0));
  const std::string option = std::string("--offload-arch=") + properties.gcnArchName;
  const char *options[] = {option.c_str()};
  Function host[2];
  HIP(hipMemcpyFromSymbol(host, HIP_SYMBOL(functions), sizeof host));
  const std::string what = count > 1 ? words[1] : "";
  EXPECT(what != "removed" || unlink(words[0]) == 0); // and with it the file of these functions
  if (what == "wild")                                 // a pointer to no code
    host[1] = reinterpret_cast<Function>(on_device(std::vector<int>(64)));
  int *out = on_device(std::vector<int>(256));
  for (int turn = 0; turn < 2; ++turn) {
    const std::string source = "extern \"C\" __global__ void apply(int *out, int (*even)(int), int (*odd)(int)) {"
                               " int i = blockIdx.x * blockDim.x + threadIdx.x;"
                               " out[i] = (i % 2 ? odd : even)(i) + " +
                               std::to_string(turn) + " + even(i); }";
    hiprtcProgram program;
    EXPECT(hiprtcCreateProgram(&program, source.c_str(), "apply.hip", 0, nullptr, nullptr) == HIPRTC_SUCCESS);
    EXPECT(hiprtcCompileProgram(program, 1, options) == HIPRTC_SUCCESS);
    size_t size = 0;
    EXPECT(hiprtcGetCodeSize(program, &size) == HIPRTC_SUCCESS);
    std::vector<char> code(size);
    EXPECT(hiprtcGetCode(program, code.data()) == HIPRTC_SUCCESS);
    EXPECT(hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS);
    hipModule_t module;
    hipFunction_t function;
    HIP(hipModuleLoadData(&module, code.data()));
    HIP(hipModuleGetFunction(&function, module, "apply"));
    void *arguments[] = {&out, &host[0], &host[1]};
    for (int launch = 0; launch < 3; ++launch)
      HIP(hipModuleLaunchKernel(function, 2, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
    const auto values = on_host(out, 256);
    for (int i = 0; i < 256; ++i) {
      int steps = 1;
      for (long value = i; value > 1; value = value % 2 ? 3 * value + 1 : value / 2)
        ++steps;
      EXPECT(values[i] == (i % 2 ? steps : 2 * i) + turn + 2 * i);
    }
    HIP(hipModuleUnload(module));
  }
  std::puts("called");
}
