// Functions of HIP by `dlopen` and `dlsym`, as bindings for other languages have them, or with -DLINKED as others do.
// Arguments: a code object with a kernel `writes`, and what to do wrong.
#define __HIP_PLATFORM_AMD__
#define __HIP_DISABLE_CPP_FUNCTIONS__ // overloads have no one address
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include <hip/hip_runtime_api.h>

constexpr int kCount = 64;

#ifdef LINKED
#define HIP(name) name
#else
template <typename Function> Function *looked_up(const char *name) {
  static void *const library = dlopen(HIP_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
  auto *found = library ? reinterpret_cast<Function *>(dlsym(library, name)) : nullptr;
  if (!found) {
    std::printf("%s\n", dlerror());
    std::exit(1);
  }
  return found;
}
#define HIP(name) looked_up<decltype(::name)>(#name)
#endif

static void check(hipError_t result) {
  if (result != hipSuccess) {
    std::printf("error %d\n", result);
    std::exit(1);
  }
}

// One that is next behind the caller's own.
extern "C" __attribute__((visibility("default"))) int puts(const char *text) {
  using Function = int(const char *);
  const auto next = reinterpret_cast<Function *>(dlsym(RTLD_NEXT, "puts"));
  return next && next != puts && dlsym(RTLD_DEFAULT, "puts") != nullptr ? next(text) : -1;
}

int main(int, char **argv) {
  const char *bug = argv[2];
  const auto is = [&](const char *what) { return !std::strcmp(bug, what); };
  void *out = nullptr;
  int host[kCount + 1] = {};
  hipModule_t module;
  hipFunction_t writes;
  check(HIP(hipModuleLoad)(&module, argv[1]));
  check(HIP(hipModuleGetFunction)(&writes, module, "writes"));
  check(HIP(hipMalloc)(&out, kCount * sizeof(int)));
  void *pointer = out;
  int count = kCount + is("above");
  void *arguments[] = {&pointer, &count};
  check(HIP(hipModuleLaunchKernel)(writes, 1, 1, 1, 2 * kCount, 1, 1, 0, nullptr, arguments, nullptr));
  check(HIP(hipDeviceSynchronize)());
  static_cast<void>(HIP(hipMemcpy)(host, out, (kCount + is("copy")) * sizeof(int), hipMemcpyDeviceToHost));
  if (!is("leak"))
    check(HIP(hipFree)(out));
  if (is("twice"))
    static_cast<void>(HIP(hipFree)(out));
  std::puts(host[kCount - 1] == kCount - 1 || is("copy") ? "done" : "wrong");
}
