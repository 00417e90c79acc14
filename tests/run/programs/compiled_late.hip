// hiprtc and the module API; several modules one after another, at the same address or not.
#include "check.h"

#include <hip/hiprtc.h>
#include <string>

int main() {
  hipDeviceProp_t properties;
  HIP(hipGetDeviceProperties(&properties, 0));
  const std::string option = std::string("--offload-arch=") + properties.gcnArchName;
  const char *options[] = {option.c_str()};
  int *out = on_device(std::vector<int>(64));
  for (int turn = 1; turn <= 3; ++turn) {
    const std::string source = "extern \"C\" __device__ int scale = 10;\n"
                               "extern \"C\" __global__ void fill(int *out, int base) {"
                               " out[threadIdx.x] = base + scale * " +
                               std::to_string(turn) + " * threadIdx.x; }";
    hiprtcProgram program;
    EXPECT(hiprtcCreateProgram(&program, source.c_str(), "fill.hip", 0, nullptr, nullptr) == HIPRTC_SUCCESS);
    EXPECT(hiprtcCompileProgram(program, 1, options) == HIPRTC_SUCCESS);
    size_t size = 0;
    EXPECT(hiprtcGetCodeSize(program, &size) == HIPRTC_SUCCESS);
    std::vector<char> code(size);
    EXPECT(hiprtcGetCode(program, code.data()) == HIPRTC_SUCCESS);
    EXPECT(hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS);
    hipModule_t module;
    hipFunction_t function;
    HIP(hipModuleLoadData(&module, code.data()));
    HIP(hipModuleGetFunction(&function, module, "fill"));
    hipDeviceptr_t scale;
    HIP(hipModuleGetGlobal(&scale, &size, module, "scale"));
    EXPECT(size == 4);
    const int twelve = 12, base = 100;
    HIP(hipMemcpy(scale, &twelve, 4, hipMemcpyHostToDevice));
    void *arguments[] = {&out, const_cast<int *>(&base)};
    HIP(hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    const auto values = on_host(out, 64);
    for (int i = 0; i < 64; ++i)
      EXPECT(values[i] == 100 + 12 * turn * i);
    HIP(hipModuleUnload(module));
  }
  std::puts("three modules");
}
