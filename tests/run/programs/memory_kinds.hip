// Memory by each of HIP's functions that give it, and a write of its last int, or so many bytes behind that.
#include "check.h"

#include <string>

__global__ void write(char *last) { *reinterpret_cast<int *>(last) = 7; }

int main(int, char **argv) {
  const std::string kind = argv[1];
  const long beyond = std::atol(argv[2]);
  size_t size = 4000, pitch = 0;
  void *made = nullptr, *freed = nullptr;
  if (kind == "hipMalloc")
    HIP(hipMalloc(&made, size));
  if (kind == "hipExtMallocWithFlags")
    HIP(hipExtMallocWithFlags(&made, size, hipDeviceMallocDefault));
  if (kind == "hipMallocManaged")
    HIP(hipMallocManaged(&made, size));
  if (kind == "hipHostMalloc")
    HIP(hipHostMalloc(&made, size, 0));
  if (kind == "hipHostAlloc")
    HIP(hipHostAlloc(&made, size, 0));
  if (kind == "hipMemAllocHost")
    HIP(hipMemAllocHost(&made, size));
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  if (kind == "hipMallocAsync")
    HIP(hipMallocAsync(&made, size, stream));
  if (kind == "hipMallocPitch") {
    HIP(hipMallocPitch(&made, &pitch, 100, 7));
    size = pitch * 7;
  }
  if (kind == "hipMemAllocPitch") {
    HIP(hipMemAllocPitch(&made, &pitch, 100, 7, 4));
    size = pitch * 7;
  }
  if (kind == "hipMalloc3D") {
    hipPitchedPtr box;
    HIP(hipMalloc3D(&box, make_hipExtent(100, 7, 3)));
    EXPECT(box.ysize == 7);
    made = box.ptr;
    size = box.pitch * 7 * 3;
  }
  freed = made;
  std::vector<int> own(size);
  hipArray *array = nullptr;
  if (kind == "hipHostRegister") {
    HIP(hipHostRegister(own.data(), size, 0));
    HIP(hipHostGetDevicePointer(&made, own.data(), 0));
  }
  const hipChannelFormatDesc format = hipCreateChannelDesc<int>();
  if (kind == "hipMallocArray")
    HIP(hipMallocArray(&array, &format, 30, 3, 0));
  if (kind == "hipMalloc3DArray")
    HIP(hipMalloc3DArray(&array, &format, make_hipExtent(30, 3, 2), 0));
  if (made)
    write<<<1, 1>>>(static_cast<char *>(made) + size - 4 + beyond);
  HIP(hipDeviceSynchronize());
  if (array)
    HIP(hipFreeArray(array));
  if (kind == "hipHostRegister")
    HIP(hipHostUnregister(own.data()));
  if (kind.find("Host") == std::string::npos)
    HIP(hipFree(freed));
  else
    HIP(hipHostFree(freed));
  std::printf("done %zu\n", size);
}
