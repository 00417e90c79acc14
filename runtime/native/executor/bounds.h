// Accesses outside what the program allocated, found where compiled code looks up an address.
//
// Compiled code compares each access with one range of its table and calls for help outside of it: inside, nothing is
// slower. The table that it sees then has the program's allocations, to the byte; what is outside is told, and goes on
// if the device may access it.
#pragma once

#include <cstdint>

namespace luthier {

class BoundsCheck {
public:
  virtual ~BoundsCheck() = default;
  // Return whether an access may go on that is in no range of the table. `record` is its instruction.
  virtual bool passes(const char *wave, uint64_t record, uint64_t address, uint64_t size, unsigned lane) = 0;
};

// What this thread's compiled code asks.
void activate(BoundsCheck *check);
// Return the function that compiled code is to call for addresses that its fast check does not know: `translate`, or
// one that asks what is active.
uint64_t translate_function(bool checked);

} // namespace luthier
