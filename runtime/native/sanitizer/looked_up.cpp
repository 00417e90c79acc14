// Functions of runtimes that a program looks up by name (`dlopen` and `dlsym`, as language bindings and plugins of
// OpenMP do): it gets those of this library, as programs do that are linked with the runtimes.
#include <cstring>
#include <dlfcn.h>
#include <string_view>

#include "lookup.h"
#include "sanitizer.h"

// Symbols of the linker: the begin and end of this library.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start, _end;

namespace {

using luthier::library_of;
using luthier::Lookup;

bool begins(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

// Return a function of this library; null if it has none of that name.
void *own(Lookup *real, const char *name) {
  static void *const library = [] {
    Dl_info info{};
    return dladdr(reinterpret_cast<const void *>(&begins), &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                                                                  : nullptr;
  }();
  void *const function = library ? real(library, name) : nullptr;
  return luthier::is_own_code(function) ? function : nullptr;
}

struct Names {
  std::string_view prefix, library;
};
constexpr Names kNames[] = {{"hip", "libamdhip64"}, {"__hip", "libamdhip64"},   {"hsa_", "libhsa-runtime64"},
                            {"cl", "libOpenCL"},    {"omp_target_", "libgomp"}, {"omp_target_", "libomp"}};

} // namespace

bool luthier::is_own_code(const void *address) { return address >= &__ehdr_start && address < &_end; }

void *luthier_looked_up(void *handle, const char *name, const void *caller) {
  if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || !name)
    return nullptr;
  for (const auto &[prefix, library] : kNames) {
    if (!begins(name, prefix))
      continue;
    Lookup *const real = luthier_real_dlsym();
    if (!real || begins(library_of(caller), "libluthier_"))
      return nullptr;
    if (begins(library_of(real(handle, name)), library))
      return own(real, name);
  }
  return nullptr;
}
