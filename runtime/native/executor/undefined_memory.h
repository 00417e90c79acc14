// Shadow of all memory of the process: which bits are undefined, and what they were then.
//
// The bits of a dword count while it holds what it held when they were set: whoever writes something else, by whatever
// way, defines it.
#pragma once

#include <cstdint>
#include <utility>

namespace luthier {

class UndefinedMemory {
public:
  // The process's, reserved at the first call; throws `Failure`.
  static UndefinedMemory &get();
  // Return the address for layout::context::undefined.
  uint64_t address() const { return reinterpret_cast<uint64_t>(base_); }
  // Let memory count as written by nobody since now.
  void leave(uint64_t address, uint64_t size);
  // Let memory count as written: also what is given back, for others will have it.
  void define(uint64_t address, uint64_t size);
  // Return how many bytes have undefined bits, and the address of the first one.
  std::pair<uint64_t, uint64_t> undefined(uint64_t address, uint64_t size) const;
  // Let all memory count as written.
  void define_all();

private:
  UndefinedMemory();
  char *base_;
};

} // namespace luthier
