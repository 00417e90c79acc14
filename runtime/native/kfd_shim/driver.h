// The shim of the amdgpu kernel driver: its answers to programs, on top of the virtual device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace luthier {

// Answer a request to the driver: 0, or a negative error number. Throws nothing.
int kfd_ioctl(unsigned long request, void *argument) noexcept;

// Answer a request to the render device of a GPU, counted from 0.
int render_ioctl(unsigned gpu, unsigned long request, void *argument) noexcept;

// Map an opened device into a process: return where the allocation put the memory, or `MAP_FAILED` with an error number
// in errno.
void *device_mmap(void *address, size_t size, int protection, int flags, uint64_t offset) noexcept;

// Call `replace`, by which the process unmaps these addresses or maps something else there, and forget these addresses
// unless it returns -1.
long replace_addresses(const void *address, size_t size, const std::function<long()> &replace) noexcept;

// Return whether the device can be opened; on false the reason has been printed.
bool kfd_open() noexcept;

} // namespace luthier
