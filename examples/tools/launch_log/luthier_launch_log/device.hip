// Device side of the launch log: the first work-item of a launch tells what the kernel's arguments hold.
#include <hip/hip_runtime.h>
#include <luthier/channel.h>

MARK_LUTHIER_DEVICE_MODULE

/// A piece of a kernel's arguments.
struct Piece {
  uint32_t offset; // in bytes, among the arguments
  uint32_t value;
  uint8_t size; // bytes of the value
};
LUTHIER_RECORD(Piece, offset, value, size)

__device__ luthier::channel<Piece> arguments;

/// A wave starts. The kernel has `size` bytes of arguments of its own.
LUTHIER_HOOK_ANNOTATE starts(uint32_t size) {
  if (blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x | threadIdx.y | threadIdx.z)
    return;
  const auto *bytes = static_cast<const uint8_t *>((const void *)__builtin_amdgcn_kernarg_segment_ptr());
  uint32_t offset = 0;
  for (; offset + 4 <= size; offset += 4)
    arguments.push({offset, *reinterpret_cast<const uint32_t *>(bytes + offset), 4});
  for (; offset < size; ++offset)
    arguments.push({offset, bytes[offset], 1});
}
