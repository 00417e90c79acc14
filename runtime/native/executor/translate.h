// Checks and translates the addresses of lanes that compiled code's fast check does not know.
#pragma once

#include <cstdint>

namespace luthier {

// Check and translate the lane addresses in a wave's context, one by one. Flat addresses in the shared and private
// apertures, and of scratch, become host addresses; all others must be in an allocation. The index of the last range is
// written to `cache`, 32 bits, for the fast check of the same instruction. Compiled code calls this.
//
// Return 0, or 1 with the fault in the context.
int translate(const char *wave, char *cache, uint64_t lanes, uint64_t size, uint64_t flat);

} // namespace luthier
