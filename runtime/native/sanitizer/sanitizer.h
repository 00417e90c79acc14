// What the files of this library share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "next_function.h"

namespace luthier {

inline constexpr int kSuccess = 0, kInvalidValue = 1;
inline constexpr const char *kHsaLibrary = "libhsa-runtime64", *kOpenClLibrary = "libOpenCL",
                            *kOpenMpLibrary = "libgomp";

// Memory asked for inside of one of HIP's functions that stand here is that function's own business.
inline thread_local bool inside = false;

struct Inside {
  const bool before = inside;
  Inside() { inside = true; }
  ~Inside() { inside = before; }
};

// Return the function that stands behind one of the same name here, of a library whose file's name begins so.
template <typename Function> Function *next(const char *name, const char *library = "libamdhip64") {
  auto *found = next_function<Function>(name, library);
  if (!found) {
    std::fprintf(stderr, "luthier: the program calls %s, which no library has\n", name);
    std::abort();
  }
  return found;
}

// Return whether an address is in the code of this library.
bool is_own_code(const void *address);

// An allocation of the program, as it asked for it.
struct Known {
  uint64_t address, size;
  bool freed;
  bool device; // the host has no access to it by rights
};
// Return the allocation that an address is in; nothing if it is in none that is known.
std::optional<Known> known_around(const void *address);

// Tells of a HIP function that the program has called from `site`, unless another one of HIP's did.
void note_result(const char *function, int result, const void *site);

// Tells, once, that of memory by a function of a runtime pages alone are known. `site` is the program's call of it.
void note_pages(const char *function, const void *site);

// The work of a stream is done, or that of all: looks at what its copies have handed to the host.
void look_at_copies(const void *stream);
void look_at_all_copies();

} // namespace luthier
