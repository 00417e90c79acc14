// Declarations that the files of this library share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "host_stack.h"
#include "next_function.h"

namespace luthier {

inline constexpr int kSuccess = 0, kInvalidValue = 1;
inline constexpr const char *kHsaLibrary = "libhsa-runtime64", *kOpenClLibrary = "libOpenCL",
                            *kOpenMpLibrary = "libgomp";

// Passed in the C ABI as HIP's dim3, hipExtent, by value, and hipPitchedPtr are.
struct Dim3 {
  uint32_t x, y, z;
};
struct Box {
  size_t width, height, depth;
};
struct Pitched {
  void *address;
  size_t pitch, width, height;
};

// Memory that is allocated inside of a HIP function of this library is that function's own.
inline thread_local bool inside = false;

struct Inside {
  const bool before = inside;
  Inside() { inside = true; }
  ~Inside() { inside = before; }
};

// Return the function of the same name behind one of this library, from a library whose file name begins so.
template <typename Function> Function *next(const char *name, const char *library = "libamdhip64") {
  auto *function = next_function<Function>(name, library);
  if (!function) {
    std::fprintf(stderr, "luthier: the program calls %s, which no loaded library has\n", name);
    std::abort();
  }
  return function;
}

// Return the stack of the program's calls; null, which is reported once, if too many stacks were met. No lock may be
// held that a constructor of a library may wait for: the dynamic linker may be asked for Python's functions.
CallTrace calls_here();

// Return whether an address is in the code of this library.
bool is_own_code(const void *address);

// An allocation as the program requested it, or memory that it has registered.
struct Known {
  uint64_t address, size;
  bool freed;
  bool device;                // the host must not access it
  bool pinned = false;        // memory of the host that copies use directly
  bool is_allocation = false; // else registered: other memory may share its pages
};
// Return the known allocation that an address is in, if there is one.
std::optional<Known> known_around(const void *address);

// Report a HIP function that the program has called from `site`, unless another HIP function called it.
void note_result(const char *function, int result, const void *site);

// Call HIP's own function for the program.
template <typename... Types> int call(const char *name, const void *site, Types... arguments) {
  auto *own = next<int(Types...)>(name);
  if (inside)
    return own(arguments...);
  int result;
  {
    Inside now;
    result = own(arguments...);
  }
  note_result(name, result, site);
  return result;
}

// Report, once, that memory from a function of a runtime is known only in pages. `site` is the program's call of it.
void note_pages(const char *function, const void *site);

// The work of a stream's copies is done as far as the device is concerned: check what they have written to the host.
void look_at_copies(const void *stream);
// The program has waited for the work of a stream (null: of all), or of all.
void stream_is_done(void *stream);
void all_streams_are_done();

} // namespace luthier
