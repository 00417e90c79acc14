// Shadow of all memory of the process: the undefined bits, and the values of their dwords.
//
// The bits of a dword count as long as it has the value that it had when they were set: any write of another value
// defines it.
#pragma once

#include <cstdint>
#include <utility>

namespace luthier {

class UndefinedMemory {
public:
  // Return the memory of the process, reserved at the first call. Throws `Failure`.
  static UndefinedMemory &get();
  // Return the address for layout::context::undefined.
  uint64_t address() const { return reinterpret_cast<uint64_t>(base_); }
  // Mark memory as unwritten.
  void leave(uint64_t address, uint64_t size);
  // Mark memory as written; also memory that is freed, because it will be reused.
  void define(uint64_t address, uint64_t size);
  // Return the number of bytes with undefined bits, and the address of the first one.
  std::pair<uint64_t, uint64_t> undefined(uint64_t address, uint64_t size) const;
  // Mark all memory as written.
  void define_all();

private:
  UndefinedMemory();
  char *base_;
};

} // namespace luthier
