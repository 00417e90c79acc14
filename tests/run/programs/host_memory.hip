// Pinned, mapped and registered host memory; copies in two dimensions; fills; what a pointer is.
#include "check.h"

#if HIP_VERSION_MAJOR < 6
#define TYPE memoryType
#else
#define TYPE type
#endif

__global__ void negate(int *values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    values[i] = -values[i];
}

int main() {
  const int n = 3000;
  int *mapped = nullptr, *seen = nullptr;
  HIP(hipHostMalloc(reinterpret_cast<void **>(&mapped), n * sizeof(int), hipHostMallocMapped));
  HIP(hipHostGetDevicePointer(reinterpret_cast<void **>(&seen), mapped, 0));
  std::vector<int> mine(n);
  for (int i = 0; i < n; ++i)
    mapped[i] = mine[i] = i;
  negate<<<(n + 127) / 128, 128>>>(seen, n);
  HIP(hipHostRegister(mine.data(), n * sizeof(int), hipHostRegisterDefault));
  HIP(hipHostGetDevicePointer(reinterpret_cast<void **>(&seen), mine.data(), 0));
  negate<<<(n + 127) / 128, 128>>>(seen, n);
  HIP(hipDeviceSynchronize());
  HIP(hipHostUnregister(mine.data()));
  for (int i = 0; i < n; ++i)
    EXPECT(mapped[i] == -i && mine[i] == -i);

  const size_t width = 100, height = 30;
  size_t pitch = 0;
  char *plane = nullptr;
  HIP(hipMallocPitch(reinterpret_cast<void **>(&plane), &pitch, width, height));
  std::vector<char> in(width * height), out(width * height);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = i % 101;
  HIP(hipMemset2D(plane, pitch, 7, width, height));
  HIP(hipMemcpy2D(plane, pitch, in.data(), width, width / 2, height, hipMemcpyHostToDevice));
  HIP(hipMemcpy2D(out.data(), width, plane, pitch, width, height, hipMemcpyDeviceToHost));
  for (size_t y = 0; y < height; ++y)
    for (size_t x = 0; x < width; ++x)
      EXPECT(out[y * width + x] == (x < width / 2 ? in[y * width + x] : 7));

  int *device = nullptr;
  HIP(hipMalloc(&device, n * sizeof(int)));
  HIP(hipMemset(device, 0x11, n * sizeof(int)));
  HIP(hipMemsetD32(device + 10, 5, 20));
  const auto filled = on_host(device, n);
  for (int i = 0; i < n; ++i)
    EXPECT(filled[i] == (i >= 10 && i < 30 ? 5 : 0x11111111));
  hipPointerAttribute_t attributes;
  HIP(hipPointerGetAttributes(&attributes, device + 5));
  EXPECT(attributes.TYPE == hipMemoryTypeDevice && attributes.device == 0);
  HIP(hipPointerGetAttributes(&attributes, mapped));
  EXPECT(attributes.TYPE == hipMemoryTypeHost);
  std::puts("host memory");
}
