// The shim of the amdgpu kernel driver: its answers to programs, on top of the virtual device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace luthier {

// The driver's answer to a request of a process: 0, or an error number, negative. Nothing is thrown.
int kfd_ioctl(unsigned long request, void *argument) noexcept;

// Answer a request to the render device of a GPU, counted from 0.
int render_ioctl(unsigned gpu, unsigned long request, void *argument) noexcept;

// Map an opened device into a process: the memory is where the allocation put it. `MAP_FAILED` and an error number in
// errno if there is none.
void *device_mmap(void *address, size_t size, int protection, int flags, uint64_t offset) noexcept;

// Call `replace`, by which the process gives up these addresses or has something else there, and forget what is known
// of them unless it returns -1.
long replace_addresses(const void *address, size_t size, const std::function<long()> &replace) noexcept;

// Return whether the device can be opened; on false the reason has been printed.
bool kfd_open() noexcept;

} // namespace luthier
