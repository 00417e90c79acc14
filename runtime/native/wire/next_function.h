// Finds the program's function of the same name that a function of this library stands before.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <string_view>

namespace luthier {

// Return whether an address is in a loaded object.
inline bool is_in(const dl_phdr_info &object, ElfW(Addr) address) {
  for (unsigned number = 0; number < object.dlpi_phnum; ++number)
    if (const auto &segment = object.dlpi_phdr[number];
        segment.p_type == PT_LOAD && address - object.dlpi_addr - segment.p_vaddr < segment.p_memsz)
      return true;
  return false;
}

// Return the file name of the library that an address is in; empty if it is in the program itself, or in none.
inline std::string library_of(const void *address) {
  struct Search {
    ElfW(Addr) address;
    std::string file;
  } search{reinterpret_cast<ElfW(Addr)>(address), {}};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        auto &wanted = *static_cast<Search *>(data);
        if (!is_in(*info, wanted.address))
          return 0;
        const std::string_view path = info->dlpi_name;
        wanted.file = path.substr(path.rfind('/') + 1);
        return 1;
      },
      &search);
  return search.file;
}

// Return the path of a loaded library whose file name begins with `name`; empty if there is none.
inline std::string loaded_library(std::string_view name) {
  struct Search {
    std::string_view name;
    std::string path;
  } search{name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        auto &search = *static_cast<Search *>(data);
        const std::string_view path = info->dlpi_name;
        const std::string_view file = path.substr(path.rfind('/') + 1);
        if (file.substr(0, search.name.size()) != search.name)
          return 0;
        search.path = path;
        return 1;
      },
      &search);
  return search.path;
}

// Return the next function of this name; null if there is none. `library` is the beginning of a file name: a program or
// plugin may have loaded that library with RTLD_LOCAL, where RTLD_NEXT does not look. The library then stays loaded, as
// callers keep the function.
template <typename Function> Function *next_function(const char *name, const char *library) {
  void *function = dlsym(RTLD_NEXT, name);
  const std::string path = function ? "" : loaded_library(library);
  if (void *own = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE)) {
    function = dlsym(own, name);
    dlclose(own);
  }
  return reinterpret_cast<Function *>(function);
}

} // namespace luthier
