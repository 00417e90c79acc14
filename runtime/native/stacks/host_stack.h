// The calls that lead to a launch, or to a call of a runtime, each stack of calls once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "python_frames.h"

namespace luthier {

// A call in a loaded file.
struct CodePlace {
  std::string file;    // empty if the code is in none, such as that of a JIT compiler
  uint64_t offset = 0; // from where the file is loaded on, else the address
  bool is_runtime = false, is_interpreter = false;
};

// A call in a file, or a Python function.
struct HostFrame {
  const CodePlace *code = nullptr;
  const PythonFrame *python = nullptr;
  friend bool operator==(const HostFrame &, const HostFrame &) = default;
};

struct HostStack {
  uint32_t number = 0;   // among those of this library, from 1
  bool is_whole = false; // it reaches the beginning of the thread
  // Innermost first. Two parts are left out: what runtimes call within themselves, after the function that the program
  // called; and the native calls between the first and the last of a Python interpreter, for which its functions stand.
  std::vector<HostFrame> frames;
  std::vector<uint32_t> ranges; // that the thread is in, outermost first
};

// Stacks are never freed; null: unknown.
using CallTrace = const HostStack *;

// Return the stack of this thread's calls, and whether it is met for the first time; null if too many were met.
CallTrace stack_here(std::span<const uint32_t> ranges = {}, bool *is_new = nullptr);

// Return the stack of calls that return to these addresses, innermost first, without functions of Python; null if too
// many stacks were met.
CallTrace stack_of(std::span<const void *const> returns);

// Find the Python interpreter of this process if it is loaded. `stack_here` otherwise does so at the first call, which
// waits for threads that load libraries: they may wait for locks of the caller.
void find_interpreter();

} // namespace luthier
