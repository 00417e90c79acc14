// Bugs in the use of memory, one a run: which container, and which bug. Without one, everything is as it should be.
#include "check.h"

#include <cstring>

// Each kernel touches one element, `at`, in a line of its own.
__global__ void reads(const int *data, int *out, long at) {
  out[threadIdx.x] = data[at + threadIdx.x]; // line: read
}

__global__ void writes(int *data, long at) {
  data[at + threadIdx.x] = 7; // line: write
}

__global__ void adds(int *data, long at) {
  atomicAdd(&data[at + threadIdx.x], 1); // line: atomic
}

struct Containers {
  static int *make(const char *container, size_t bytes) {
    void *made = nullptr;
    if (!std::strcmp(container, "device"))
      HIP(hipMalloc(&made, bytes)); // line: allocated device
    else if (!std::strcmp(container, "managed"))
      HIP(hipMallocManaged(&made, bytes)); // line: allocated managed
    else if (!std::strcmp(container, "pool")) {
      hipMemPool_t pool;
      HIP(hipDeviceGetDefaultMemPool(&pool, 0));
      HIP(hipMallocFromPoolAsync(&made, bytes, pool, nullptr)); // line: allocated pool
    } else
      HIP(hipHostMalloc(&made, bytes, 0)); // line: allocated host
    return static_cast<int *>(made);
  }
  static void give_back(const char *container, void *memory) {
    if (!std::strcmp(container, "host"))
      HIP(hipHostFree(memory)); // line: given back host
    else if (!std::strcmp(container, "pool"))
      HIP(hipFreeAsync(memory, nullptr)); // line: given back pool
    else
      HIP(hipFree(memory)); // line: given back device
  }
};

int main(int argc, char **argv) {
  const char *container = argc > 1 ? argv[1] : "device", *bug = argc > 2 ? argv[2] : "none";
  const char *access = argc > 3 ? argv[3] : "read";
  const auto is = [&](const char *what) { return !std::strcmp(bug, what); };
  const int lanes = 32, n = 1000;
  int *before = Containers::make(container, 4 * n);
  int *data = Containers::make(container, is("halved") ? 2 * n : 4 * n), *after = Containers::make(container, 4 * n);
  int *out = Containers::make("device", 4 * lanes);
  long at = n - lanes;
  if (is("above"))
    at += 1; // the last lane is one too far
  if (is("below"))
    at = -1; // the first lane is one too early
  if (is("freed"))
    Containers::give_back(container, data);
  if (!std::strcmp(access, "read"))
    reads<<<1, lanes>>>(data, out, at);
  else if (!std::strcmp(access, "write"))
    writes<<<1, lanes>>>(data, at);
  else
    adds<<<1, lanes>>>(data, at);
  HIP(hipDeviceSynchronize());
  if (is("twice")) {
    Containers::give_back(container, data);
    EXPECT((std::strcmp(container, "host") ? hipFree(data) : hipHostFree(data)) == hipErrorInvalidValue);
  } else if (is("inside")) {
    EXPECT((std::strcmp(container, "host") ? hipFree(data + 1) : hipHostFree(data + 1)) == hipErrorInvalidValue);
    Containers::give_back(container, data);
  } else if (!is("freed") && !is("leak")) {
    Containers::give_back(container, data);
  }
  Containers::give_back(container, before);
  Containers::give_back(container, after);
  Containers::give_back("device", out);
  std::puts("done");
}
