// The memory that OpenCL's runtime allocates with ROCr: buffers and images of the program, and memory of its own.
#pragma once

#include "blocks.h"

namespace luthier::opencl {

// Return whether memory of the block's size is that of a buffer. If so, set the calls that created the buffer.
bool is_buffer(Block &block);

} // namespace luthier::opencl
