// Finds accesses outside of the program's allocations, where compiled code looks up an address.
//
// Compiled code compares each access with one range of its table, and calls for help outside of it, so accesses inside
// are as fast as before. With this check the table has the program's allocations, to the byte. An access outside is
// reported, and continues if the device may access the memory.
#pragma once

#include <cstdint>

namespace luthier {

class BoundsCheck {
public:
  virtual ~BoundsCheck() = default;
  // Return whether an access outside of all ranges of the table may continue. `record` is its instruction.
  virtual bool passes(const char *wave, uint64_t record, uint64_t address, uint64_t size, unsigned lane) = 0;
};

// The bounds that compiled code of this thread checks.
void activate(BoundsCheck *check);
// Return the function that compiled code must call for addresses outside of its fast check: `translate`, or one that
// asks the active bounds.
uint64_t translate_function(bool checked);

} // namespace luthier
