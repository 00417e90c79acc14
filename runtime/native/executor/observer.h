// Receives the memory accesses and barriers of a launch's observed code as they happen.
//
// Compiled code passes the wave, its record, and for an access the place of its lanes' addresses, before it reads or
// writes.
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
  // Return whether to report all accesses from the beginning; otherwise set layout::wave::told, which decides.
  virtual bool wants_accesses() const = 0;
  // An event (layout::EVENT_ACCESS and the others); `access` is a layout::access or null.
  virtual void observe(const Instruction &instruction, const char *access, uint32_t event) = 0;
};

// Passes each event to the observers for it; null: there is none.
class Observers final : public Observer {
public:
  Observers(Observer *accesses, Observer *floats, Observer *decisions, Observer *beyond_lds = nullptr,
            Observer *coarse_only = nullptr)
      : accesses_(accesses), floats_(floats), decisions_(decisions), beyond_lds_(beyond_lds),
        coarse_only_(coarse_only) {}
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
    case layout::EVENT_COARSE_ONLY:
      return coarse_only_;
    case layout::EVENT_FLOATS:
    case layout::EVENT_FOLLOWED:
      return floats_;
    case layout::EVENT_UNDEFINED:
      return decisions_;
    default:
      return accesses_;
    }
  }
  Observer *accesses_, *floats_, *decisions_, *beyond_lds_, *coarse_only_;
};

// The observer of compiled code on this thread; null if there is none.
void activate(Observer *observer);
// Return the function that compiled code must call.
uint64_t observe_function();

} // namespace luthier
