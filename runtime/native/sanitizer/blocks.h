// Memory that the program has allocated by any runtime, and freed.
//
// Behind each allocation there is a zone that belongs to none, so that reads beyond its end are outside of every
// allocation. Memory that is freed is kept for a while, so that later uses of it are found.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host_stack.h"

namespace luthier {

inline constexpr size_t kZone = 256, kPage = 4096; // bytes behind an allocation; granule of what drivers give

enum class Kind { kDevice, kManaged, kHost, kAsync, kHsa, kSvm, kOpenMp };

struct Block {
  size_t size = 0;
  Kind kind = Kind::kDevice;
  uint64_t owner = 0;        // the context for SVM, the number of the device for OpenMP
  bool is_programs = true;   // else a runtime has asked for it, and may keep it
  CallTrace calls = nullptr; // that have asked for it
};

// Report memory that the program has got. `reserved`: bytes that no other allocation uses.
void note(void *address, const Block &block, size_t reserved);

// Report a page that belongs to no allocation. Without it, memory of ROCr itself may be in front of the program's, and
// the two cannot be distinguished.
void note_front(void *page);

// Return whether this is not live memory, and report what is wrong; false if nothing wrong is known.
bool is_wrong(void *address);

// Keep memory that the program frees, and release older memory to its runtime if too much is kept. Return whether it is
// live memory.
bool free_later(void *address);

// Forget live memory that the program will free later.
void forget_live(void *address);

// Forget all memory of a kind, which is gone. With `leaks`, what is live then was never freed: report it.
void forget_all(bool (*is_gone)(Kind), bool leaks);

// Allocate memory with a zone behind it, or without one if that is too much; return null if there is no memory.
// `make(size)` asks the runtime, and returns null if it fails. `size` of `block` is what the program asks for.
template <typename Make> void *allocate_with_zone(const Block &block, size_t granule, Make make) {
  size_t size = block.size + kZone;
  void *address = make(size);
  if (!address) {
    size = block.size;
    address = make(size);
  }
  if (address)
    note(address, block, (size + granule - 1) / granule * granule);
  return address;
}

} // namespace luthier
