// What a launch's observed code tells: accesses of memory and barriers, as they happen.
//
// Compiled code calls with the wave, its record, and of an access where its lanes' addresses are. Nothing has been read
// or written then.
#pragma once

#include <cstdint>

namespace luthier {

class Observer {
public:
  virtual ~Observer() = default;
  struct Instruction {
    const char *wave;
    uint32_t record;
    uint64_t execution; // how often it was executed
    bool operator==(const Instruction &) const = default;
  };
  // Return whether accesses are to be told from the beginning on; else as layout::wave::told says, which is to be set.
  virtual bool wants_accesses() const = 0;
  // An event (layout::EVENT_ACCESS and the others); `access` is a layout::access or null.
  virtual void observe(const Instruction &instruction, const char *access, uint32_t event) = 0;
};

// What this thread's compiled code tells; null: nobody listens.
void activate(Observer *observer);
// Return the function that compiled code is to call.
uint64_t observe_function();

} // namespace luthier
