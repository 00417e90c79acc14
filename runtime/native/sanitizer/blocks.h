// Memory that the program has asked for, by whatever runtime, and what it has given back of it.
//
// Behind each allocation there is room that is nobody's, so that what is read before the next one is outside of any.
// Memory that is given back stays for a while, so that who still uses it is found.
#pragma once

#include <cstddef>
#include <cstdint>

#include "call_site.h"

namespace luthier {

inline constexpr size_t kZone = 256, kPage = 4096; // bytes behind an allocation; granule of what drivers give

enum class Kind { kDevice, kManaged, kHost, kAsync, kHsa, kSvm, kOpenMp };

struct Block {
  size_t size = 0;
  Kind kind = Kind::kDevice;
  uint64_t owner = 0;      // the context of SVM, the device's number of OpenMP
  bool is_programs = true; // else a runtime has asked for it, and may keep it
  CallTrace calls = {};    // that have asked for it
};

// Return the innermost calls that lead here, without those within this library.
CallTrace calls_to_here(unsigned most = 4);

// Tells of memory that the program has been given. `reserved`: bytes of it that are nobody else's.
void note(void *address, const Block &block, size_t reserved);

// Tells of a page that is nobody's, where otherwise memory of ROCr's own may lie before the program's, which nothing
// tells from it.
void note_front(void *page);

// Return whether this is no memory that is live, and tells what is wrong with it; false: nothing that is known here.
bool is_wrong(void *address);

// Keeps memory that the program gives back, and gives others back to their runtimes where there is too much of it.
// Return whether it is live memory.
bool free_later(void *address);

// Forgets live memory that the program gives back some time.
void forget_live(void *address);

// Forgets memory of a kind, which has gone; what is live then, and `leaks`, was never given back.
void forget_all(bool (*is_gone)(Kind), bool leaks);

// Return what a runtime has for a request with room behind; `make(size)` asks for it, and gives null where it fails.
// Where that is too much, it is without. Null if there is no memory. `size` of `block` is what the program asks for.
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
