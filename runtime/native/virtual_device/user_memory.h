// Memory of the program at addresses that it names in requests, which may be invalid.
#pragma once

#include <cstddef>
#include <cstdint>

namespace luthier {

bool is_readable(uint64_t address, uint64_t size);

// Copy these bytes; false if they are not all there.
bool copy_from_user(void *to, uint64_t from, size_t size);
bool copy_to_user(uint64_t to, const void *from, size_t size);

} // namespace luthier
