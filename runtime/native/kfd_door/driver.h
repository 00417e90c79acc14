// The second door: what the amdgpu kernel driver answers at /dev/kfd, on top of the virtual device. AMD's builds of ROCm
// have libhsakmt inside ROCr, so it is here that they can be met.
#pragma once

#include <cstdint>

namespace luthier {

// Number of a GPU in the driver's language; that of the host is 0. The same numbers are in the topology's files.
constexpr uint32_t kFirstGpuId = 0x4C00;

// The driver's answer to a request of a process: 0, or an error number, negative. Nothing is thrown.
int kfd_ioctl(unsigned long request, void *argument) noexcept;

// The same of the render device of a GPU, counted from 0.
int render_ioctl(unsigned gpu, unsigned long request, void *argument) noexcept;

// What a process gets where it maps an opened device: the memory is where the allocation put it. `MAP_FAILED` and an
// error number in errno if there is none.
void *kfd_mmap(void *address, uint64_t size, int flags, uint64_t offset) noexcept;

// Whether the device can be opened; on false the reason has been printed.
bool kfd_open() noexcept;

}  // namespace luthier
