// How much device memory can be had in pieces of a quarter of the device, and whether what is given back can be had again.
#include <hip/hip_runtime_api.h>

#include <cstdio>
#include <vector>

int main() {
  hipDeviceProp_t device;
  if (hipGetDeviceProperties(&device, 0) != hipSuccess)
    return 2;
  const size_t piece = device.totalGlobalMem / 4;
  std::vector<void *> pieces;
  void *got = nullptr;
  hipError_t why = hipSuccess;
  while (pieces.size() < 8 && (why = hipMalloc(&got, piece)) == hipSuccess)
    pieces.push_back(got);
  std::printf("%zu pieces, then %s\n", pieces.size(), hipGetErrorName(why));
  if (pieces.empty())
    return 1;
  const bool is_free = hipFree(pieces.back()) == hipSuccess;
  pieces.back() = nullptr;
  const bool again = is_free && hipMalloc(&pieces.back(), piece) == hipSuccess;
  std::printf("given back and %s again\n", again ? "had" : "not had");
  for (void *one : pieces)
    if (one && hipFree(one) != hipSuccess)
      return 1;
  const hipError_t all = hipMalloc(&got, piece * 3);
  std::printf("three at once: %s\n", hipGetErrorName(all));
  return 0;
}
