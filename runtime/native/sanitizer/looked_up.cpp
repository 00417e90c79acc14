// Functions of runtimes that a program looks up by name (`dlopen` and `dlsym`, as language bindings and plugins of
// OpenMP do): it gets those of this library, as programs do that are linked with the runtimes.
#include <cstring>
#include <dlfcn.h>
#include <string_view>

#include "sanitizer.h"

// Symbols of the linker: the begin and end of this library.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start, _end;

namespace {

using luthier::library_of;
using Lookup = void *(void *, const char *);

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

extern "C" {

// glibc's own `dlsym`, which is the next one behind the one below. GLIBC_2.2.5 is the version of x86-64.
__attribute__((visibility("hidden"))) Lookup *luthier_real_dlsym() {
  static auto *const function = reinterpret_cast<Lookup *>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return function;
}

// Return what a caller gets in place of a runtime's own function; null if it gets that function. Luthier's libraries
// want the runtime's own, and the meaning of pseudo-handles depends on the caller.
__attribute__((visibility("hidden"))) void *luthier_looked_up(void *handle, const char *name, const void *caller) {
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
}

// For RTLD_NEXT, `dlsym` searches behind its caller, which it finds by its return address. So it is called with the
// stack unchanged.
asm(R"(
.text
.globl dlsym
.type dlsym, @function
dlsym:
  .cfi_startproc
  endbr64
  mov (%rsp), %rdx
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  call luthier_looked_up
  test %rax, %rax
  jne 1f
  call luthier_real_dlsym
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_adjust_cfa_offset 24
1:
  add $24, %rsp
  .cfi_adjust_cfa_offset -24
  ret
  .cfi_endproc
.size dlsym, . - dlsym
)");
