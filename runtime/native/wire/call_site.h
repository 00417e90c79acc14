// Where a call of a function is in the program.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string_view>

namespace luthier {

struct CallSite {
  uint64_t offset = 0; // from where the file is loaded on
  const char *symbol = "", *file = "";
};

// Return the place of a call that returns to `site`, as the dynamic linker knows it.
inline CallSite call_site(const void *site) {
  Dl_info info{};
  // The call is before the address that it returns to.
  const void *call = static_cast<const char *>(site) - 1;
  if (!site || !dladdr(call, &info))
    return {};
  return {reinterpret_cast<uint64_t>(call) - reinterpret_cast<uint64_t>(info.dli_fbase),
          info.dli_sname ? info.dli_sname : "", info.dli_fname ? info.dli_fname : ""};
}

// Return whether a file is a runtime, which programs ask for memory.
inline bool is_runtime(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  for (const std::string_view name : {"libamdhip64", "libhiprtc", "libhsa-", "libamdocl64", "libOpenCL", "libgomp",
                                      "libomp", "libluthier_", "libroc", "libffi"})
    if (file.substr(0, name.size()) == name)
      return true;
  return false;
}

} // namespace luthier
