// Return addresses of the calls that lead to a function of this library.
#pragma once

#include <cstddef>

namespace luthier {

struct Unwound {
  size_t count = 0;
  bool is_whole = false; // it reaches the beginning of the thread
};

// Numbers of objects that the process has loaded and unloaded: if they change, addresses may have another meaning.
struct LoadedObjects {
  unsigned long long added = 0, removed = 0;
  friend bool operator==(const LoadedObjects &, const LoadedObjects &) = default;
};
LoadedObjects loaded_objects();

// Write the return addresses of the calls that lead to the caller, innermost first, up to `most` of them. One thread at
// a time may be in it: what is known of each return address is kept.
Unwound unwind(const LoadedObjects &objects, const void **returns, size_t most);

} // namespace luthier
