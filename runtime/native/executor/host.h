// Interface of an execution to the code that started it.
#pragma once

#include <memory>
#include <string>

#include "bounds.h"
#include "observer.h"
#include "ranges.h"

namespace luthier {

class Gate;
class Worker;

// Contents of waves that are the same for all of them.
struct Engine {
  std::string constants;                      // inline constants, at layout::CONSTANTS of a wave
  uint64_t shared_base = 0, private_base = 0; // apertures of LDS and scratch
  bool counts_wanted = false;                 // of all instructions that are ever executed, from the counters
};

class Host {
public:
  virtual ~Host() = default;
  // Bind a record that the kernel reaches in the table of that key. Throws `Failure`.
  virtual void bind(const char *plan, uint64_t key, uint64_t record) = 0;
  static constexpr uint64_t kNowhere = ~uint64_t{0};
  // Return the record of the instruction at an address outside the kernel's code, whose first byte is at `code`: what a
  // pointer into another object calls. kNowhere if there is none.
  virtual uint64_t find_outside(const char *plan, uint64_t code, uint64_t address) = 0;
  // Return the memory that the kernel may access now.
  virtual std::shared_ptr<const RangeTable> ranges() = 0;
  // Return the bounds that decide on accesses outside of `ranges`; null if each of them is a fault.
  virtual BoundsCheck *bounds() { return nullptr; }
  // Return the observer for observed code; not null if the plan asks for such code. The threads of
  // all workers call it.
  virtual Observer *observer() { return nullptr; }
  // Address of that many bytes of scratch.
  virtual uint64_t scratch(uint64_t size) = 0;
  // The kernel has sent an interrupt.
  virtual void interrupt() = 0;
  // The gate that threads of the launch pass between instructions; null unless a debugger may look at its waves.
  virtual Gate *gate() { return nullptr; }
  // The current wave of a stepped worker is before an instruction.
  virtual void stepped(Worker &) {}
  // A wave cannot go on, for one of layout's reasons; called on its worker's thread.
  virtual void stopped(Worker &worker, uint64_t reason) = 0;
  // An internal error occurred.
  virtual void failed(const char *what) = 0;
  // A worker has ended: its counts are complete.
  virtual void finished(Worker &worker) = 0;
};

} // namespace luthier
