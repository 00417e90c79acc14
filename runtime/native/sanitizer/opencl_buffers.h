// What OpenCL's runtime asks ROCr for: buffers of the program, images, and what it wants for itself.
#pragma once

#include "blocks.h"

namespace luthier::opencl {

// Return whether memory of the block's size is that of a buffer. If it is, sets the calls that the program has asked
// for the buffer by.
bool is_buffer(Block &block);

} // namespace luthier::opencl
