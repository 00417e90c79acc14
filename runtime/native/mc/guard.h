// Calling LLVM on input that may crash it.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"

namespace luthier {

/// Run `work`; return false if it crashed (a signal such as SIGSEGV), true if it returned. Exceptions pass through.
///
/// LLVM's AMDGPU code is written for its own compiler's output: on malformed assembly text or reserved encodings a
/// release build runs into undefined behaviour. An object that crashed leaks its memory and must not be used again.
bool survives(llvm::function_ref<void()> work);

} // namespace luthier
