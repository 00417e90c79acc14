// Modules: compiled here, from a file, from memory that is freed before anything is launched, and loaded again and again, where
// the same addresses come back.
#include <hip/hiprtc.h>

#include <fstream>
#include <string>
#include <unistd.h>

#include "check.h"

#define RTC(call) EXPECT((call) == HIPRTC_SUCCESS)

std::string compile(int factor) {
  hipDeviceProp_t device;
  HIP(hipGetDeviceProperties(&device, 0));
  const std::string source = "__device__ int calls = 100;\n"
                             "extern \"C\" __global__ void scale(int *out) {\n"
                             "  out[threadIdx.x] = threadIdx.x * " +
                             std::to_string(factor) + " + (threadIdx.x == 0 ? atomicAdd(&calls, 1) : 0);\n}\n";
  const std::string name = std::string(device.gcnArchName), option = "--offload-arch=" + name.substr(0, name.find(':'));
  const char *options[] = {option.c_str()};
  hiprtcProgram program;
  RTC(hiprtcCreateProgram(&program, source.c_str(), "scale", 0, nullptr, nullptr));
  RTC(hiprtcCompileProgram(program, 1, options));
  size_t size = 0;
  RTC(hiprtcGetCodeSize(program, &size));
  std::string code(size, '\0');
  RTC(hiprtcGetCode(program, &code[0]));
  RTC(hiprtcDestroyProgram(&program));
  return code;
}

void check(hipModule_t module, int *out, int factor) {
  hipFunction_t kernel;
  HIP(hipModuleGetFunction(&kernel, module, "scale"));
  for (int turn = 0; turn < 2; ++turn) {
    void *arguments[] = {&out};
    HIP(hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    const std::vector<int> found = on_host(out, 64);
    for (int i = 0; i < 64; ++i)
      EXPECT(found[i] == i * factor + (i == 0 ? 100 + turn : 0));
  }
}

int main() {
  int *out = on_device(std::vector<int>(64));
  const std::string codes[] = {compile(3), compile(7)};
  hipModule_t module;

  char path[] = "/tmp/luthier-module-XXXXXX";
  close(mkstemp(path));
  std::ofstream(path, std::ios::binary) << codes[0];
  HIP(hipModuleLoad(&module, path));
  check(module, out, 3);
  HIP(hipModuleUnload(module));
  unlink(path);

  for (int turn = 0; turn < 6; ++turn) {
    const int which = turn == 3 ? 0 : turn & 1;
    std::string memory = codes[which];
    HIP(hipModuleLoadData(&module, memory.data()));
    memory.assign(memory.size(), '\xFF');
    std::string().swap(memory);
    check(module, out, which ? 7 : 3);
    HIP(hipModuleUnload(module));
  }
  std::puts("modules");
}
