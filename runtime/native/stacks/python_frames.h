// The Python functions that a thread is in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace luthier {

// A Python function at an instruction.
struct PythonPlace {
  const char *code = nullptr; // its code object
  uint64_t at = 0;            // byte of its instruction
  friend bool operator==(const PythonPlace &, const PythonPlace &) = default;
};

struct PythonFrame {
  std::string name, file;
  uint32_t line = 0; // 0: unknown
};

// Return a function of the interpreter of this process; null if there is none. Cheap if `objects`, the number of loaded
// ones, has not changed.
const void *find_python(unsigned long long objects);

// Write the functions that this thread is in, innermost first, up to `most` of them. Return their number. The thread
// need not hold the interpreter's lock: only it changes its own frames, and it is in native code.
size_t python_places(PythonPlace *places, size_t most);

// Return the function of a place that this thread is in.
PythonFrame python_frame(const PythonPlace &place);

// Return the name, file, line table and first line of a code object, as numbers: another object at the same address
// has others.
struct CodeIdentity {
  uint64_t words[4];
  friend bool operator==(const CodeIdentity &, const CodeIdentity &) = default;
};
CodeIdentity identity_of(const char *code);

// Return why an interpreter of this process cannot be read; null if it can, or there is none.
const char *why_no_python();

} // namespace luthier
