// Virtual memory management: physical memory at addresses of the program's choice, used by kernels, copies and the
// other device, replaced, grown, and shared by a file descriptor.
#include <unistd.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "check.h"

__global__ void add(uint32_t *values, uint32_t count, uint32_t what) {
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count)
    values[index] += what;
}

static hipMemAllocationProp property() {
  hipMemAllocationProp made{};
  made.type = hipMemAllocationTypePinned;
  made.requestedHandleType = hipMemHandleTypePosixFileDescriptor;
  made.location = {hipMemLocationTypeDevice, 0};
  return made;
}

static void allow(void *place, size_t size) {
  const hipMemAccessDesc access{{hipMemLocationTypeDevice, 0}, hipMemAccessFlagsProtReadWrite};
  HIP(hipMemSetAccess(place, size, &access, 1));
}

static bool holds(const uint32_t *device, size_t count, uint32_t offset) {
  std::vector<uint32_t> back(count);
  HIP(hipMemcpy(back.data(), device, count * 4, hipMemcpyDeviceToHost));
  for (size_t index = 0; index < count; ++index)
    if (back[index] != index + offset)
      return false;
  return true;
}

int main() {
  int supported = 0;
  HIP(hipDeviceGetAttribute(&supported, hipDeviceAttributeVirtualMemoryManagementSupported, 0));
  std::printf("supported: %d\n", supported);
  const hipMemAllocationProp wanted = property();
  size_t granule = 0;
  HIP(hipMemGetAllocationGranularity(&granule, &wanted, hipMemAllocationGranularityRecommended));
  const size_t piece = granule > 65536 ? granule : 65536 / granule * granule, pieces = 3, whole = piece * pieces;
  const uint32_t count = piece / 4, all = whole / 4;
  void *place = nullptr;
  HIP(hipMemAddressReserve(&place, whole, 0, nullptr, 0));
  std::vector<hipMemGenericAllocationHandle_t> handles(pieces);
  for (size_t index = 0; index < pieces; ++index) { // it grows
    HIP(hipMemCreate(&handles[index], piece, &wanted, 0));
    HIP(hipMemMap(static_cast<char *>(place) + index * piece, piece, 0, handles[index], 0));
    allow(static_cast<char *>(place) + index * piece, piece);
  }
  auto *values = static_cast<uint32_t *>(place);
  std::vector<uint32_t> numbers(all);
  std::iota(numbers.begin(), numbers.end(), 0);
  HIP(hipMemcpy(values, numbers.data(), whole, hipMemcpyHostToDevice)); // over the borders of the pieces
  add<<<(all + 255) / 256, 256>>>(values, all, 5);
  HIP(hipDeviceSynchronize());
  std::printf("pieces: %s\n", holds(values, all, 5) ? "right" : "wrong");

  // The same memory at a second address.
  void *second = nullptr;
  HIP(hipMemAddressReserve(&second, piece, 0, nullptr, 0));
  HIP(hipMemMap(second, piece, 0, handles[0], 0));
  allow(second, piece);
  add<<<(count + 255) / 256, 256>>>(static_cast<uint32_t *>(second), count, 2);
  HIP(hipDeviceSynchronize());
  std::printf("second address: %s\n", holds(values, count, 7) ? "right" : "wrong");

  // Shared by a file descriptor, and imported again.
  int file = -1;
  HIP(hipMemExportToShareableHandle(&file, handles[0], hipMemHandleTypePosixFileDescriptor, 0));
  hipMemGenericAllocationHandle_t imported;
  // HIP 6 takes the descriptor's address.
  void *shared = HIP_VERSION_MAJOR < 7 ? &file : reinterpret_cast<void *>(static_cast<intptr_t>(file));
  HIP(hipMemImportFromShareableHandle(&imported, shared, hipMemHandleTypePosixFileDescriptor));
  close(file);
  HIP(hipMemUnmap(second, piece));
  HIP(hipMemMap(second, piece, 0, imported, 0));
  allow(second, piece);
  add<<<(count + 255) / 256, 256>>>(static_cast<uint32_t *>(second), count, 1);
  HIP(hipDeviceSynchronize());
  std::printf("imported: %s\n", holds(values, count, 8) ? "right" : "wrong");
  HIP(hipMemUnmap(second, piece));
  HIP(hipMemRelease(imported));
  HIP(hipMemAddressFree(second, piece));

  // Released memory stays until it is unmapped.
  for (hipMemGenericAllocationHandle_t handle : handles)
    HIP(hipMemRelease(handle));
  std::printf("released: %s\n", holds(values, count, 8) ? "right" : "wrong");
  for (size_t index = 0; index < pieces; ++index)
    HIP(hipMemUnmap(static_cast<char *>(place) + index * piece, piece));
  HIP(hipMemAddressFree(place, whole));
  std::printf("done\n");
}
