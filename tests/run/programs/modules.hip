// Modules: compiled here, from a file, from memory that is freed before anything is launched, and loaded again and
// again, where the same addresses come back: with other code, and with the same code under another descriptor.
#include <hip/hiprtc.h>

#include <fstream>
#include <string>
#include <unistd.h>

#include "check.h"

#define RTC(call) EXPECT((call) == HIPRTC_SUCCESS)

std::string compile(const std::string &source, const char *denormals = "-fno-gpu-flush-denormals-to-zero") {
  hipDeviceProp_t device;
  HIP(hipGetDeviceProperties(&device, 0));
  const std::string name = std::string(device.gcnArchName), option = "--offload-arch=" + name.substr(0, name.find(':'));
  const char *options[] = {option.c_str(), denormals};
  hiprtcProgram program;
  RTC(hiprtcCreateProgram(&program, source.c_str(), "scale", 0, nullptr, nullptr));
  RTC(hiprtcCompileProgram(program, 2, options));
  size_t size = 0;
  RTC(hiprtcGetCodeSize(program, &size));
  std::string code(size, '\0');
  RTC(hiprtcGetCode(program, &code[0]));
  RTC(hiprtcDestroyProgram(&program));
  return code;
}

std::string compile(int factor) {
  return compile("__device__ int calls = 100;\n"
                 "extern \"C\" __global__ void scale(int *out) {\n"
                 "  out[threadIdx.x] = threadIdx.x * " +
                 std::to_string(factor) + " + (threadIdx.x == 0 ? atomicAdd(&calls, 1) : 0);\n}\n");
}

// Denormals are flushed, or not, as the descriptor says: on GFX9 and later the code is the same.
void check_denormals() {
  const char *source = "extern \"C\" __global__ void halve(float *x) { *x *= 0.5f; }\n";
  const std::string codes[] = {compile(source, "-fno-gpu-flush-denormals-to-zero"),
                               compile(source, "-fgpu-flush-denormals-to-zero")};
  const float least = 1.5e-38f;
  for (int turn = 0; turn < 6; ++turn) {
    hipModule_t module;
    hipFunction_t kernel;
    HIP(hipModuleLoadData(&module, codes[turn & 1].data()));
    EXPECT(hipModuleGetFunction(&kernel, module, "third") == hipErrorNotFound);
    HIP(hipModuleGetFunction(&kernel, module, "halve"));
    float *x = on_device(std::vector<float>{least});
    void *arguments[] = {&x};
    HIP(hipModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    EXPECT(on_host(x, 1)[0] == (turn & 1 ? 0 : least / 2));
    HIP(hipFree(x));
    HIP(hipModuleUnload(module));
  }
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
  check_denormals();
  std::puts("modules");
}
