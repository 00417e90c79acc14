// What a launch's observed code tells: accesses of memory and barriers, as they happen.
//
// Compiled code calls with the wave, its record, and of an access where its lanes' addresses are. Nothing has been read
// or written then.
#pragma once

#include <cstdint>

#include "bytes.h"

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

// Tells each observer what is its own; null: nobody wants it.
class Observers final : public Observer {
public:
  Observers(Observer *accesses, Observer *floats, Observer *decisions, Observer *beyond_lds = nullptr)
      : accesses_(accesses), floats_(floats), decisions_(decisions), beyond_lds_(beyond_lds) {}
  bool wants_accesses() const override { return accesses_ && accesses_->wants_accesses(); }
  void observe(const Instruction &instruction, const char *what, uint32_t event) override {
    if (Observer *its = whose(event))
      its->observe(instruction, what, event);
  }

private:
  Observer *whose(uint32_t event) const {
    switch (event) {
    case layout::EVENT_BEYOND_LDS:
      return beyond_lds_;
    case layout::EVENT_FLOATS:
      return floats_;
    case layout::EVENT_UNDEFINED:
      return decisions_;
    default:
      return accesses_;
    }
  }
  Observer *accesses_, *floats_, *decisions_, *beyond_lds_;
};

// What this thread's compiled code tells; null: nobody listens.
void activate(Observer *observer);
// Return the function that compiled code is to call.
uint64_t observe_function();

} // namespace luthier
