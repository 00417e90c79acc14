// A library with a kernel, and a program that opens it in a folder by a path, and launches when it has left that folder,
// or when the library's file is gone.
#ifdef LIBRARY
#include <hip/hip_runtime.h>

__global__ void square(int *values) { values[threadIdx.x] *= values[threadIdx.x]; }

extern "C" void launch(int *values) { square<<<1, 64>>>(values); }
#else
#include "check.h"

#include <dlfcn.h>
#include <string>
#include <unistd.h>

int main(int, char **words) {
  const std::string folder = words[1], path = words[2], what = words[3];
  int *values = on_device(std::vector<int>(64, 7));
  EXPECT(chdir(folder.c_str()) == 0);
  void *library = dlopen(path.c_str(), RTLD_NOW);
  EXPECT(library);
  const auto launch = reinterpret_cast<void (*)(int *)>(dlsym(library, "launch"));
  EXPECT(what != "removed" || unlink(path.c_str()) == 0);
  EXPECT(what != "elsewhere" || chdir("/") == 0);
  launch(values);
  HIP(hipDeviceSynchronize());
  EXPECT(on_host(values, 64) == std::vector<int>(64, 49));
  std::puts("squares");
}
#endif
