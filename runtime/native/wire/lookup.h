// Functions that programs look up by name (`dlopen` and `dlsym`): the library that includes this header has a `dlsym`
// in place of the C library's. Include it in one source of a library, which defines `luthier_looked_up`, and export
// `dlsym`.
#pragma once

#include <atomic>
#include <dlfcn.h>

namespace luthier {

using Lookup = void *(void *, const char *);

}

extern "C" {

// The `dlsym` of the next library which has one: another of Luthier's, or the C library. `dlvsym` finds the latter's,
// by the version of x86-64, and that finds the next.
__attribute__((visibility("hidden"))) luthier::Lookup *luthier_real_dlsym() {
  // No lock: allocators look up names before anything else runs, and finding it twice does no harm.
  static std::atomic<luthier::Lookup *> known;
  luthier::Lookup *function = known.load(std::memory_order_relaxed);
  if (!function) {
    auto *const of_libc = reinterpret_cast<luthier::Lookup *>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
    function = of_libc ? reinterpret_cast<luthier::Lookup *>(of_libc(RTLD_NEXT, "dlsym")) : nullptr;
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

// Return what a caller gets in place of the function that it looks up; null if it gets that function. Luthier's
// libraries want the real one, and the meaning of pseudo-handles depends on the caller.
__attribute__((visibility("hidden"))) void *luthier_looked_up(void *handle, const char *name, const void *caller);
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
