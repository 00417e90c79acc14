#include "undefined_memory.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

#include "bytes.h"
#include "origins.h"

namespace luthier {

using namespace layout;

UndefinedMemory &UndefinedMemory::get() {
  static UndefinedMemory all;
  return all;
}

UndefinedMemory::UndefinedMemory() {
  // Prefer addresses that nothing else uses: at addresses that the kernel chooses, replays of captures of other
  // processes may need memory.
  void *const place = reinterpret_cast<void *>(0x3000'0000'0000);
  void *made =
      mmap(place, 2 * UNDEFINED_COPY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED)
    throw Failure("cannot track undefined values: this process may not reserve 32 TiB of addresses");
  madvise(made, 2 * UNDEFINED_COPY, MADV_DONTDUMP);
  base_ = static_cast<char *>(made);
}

void UndefinedMemory::leave(uint64_t address, uint64_t size) {
  char *shadow = base_ + (address & UNDEFINED_MASK);
  std::memcpy(shadow + UNDEFINED_COPY, reinterpret_cast<const void *>(address), size);
  std::memset(shadow, 0xFF, size);
  Origins::undefined().fresh(address, size);
}

std::pair<uint64_t, uint64_t> UndefinedMemory::undefined(uint64_t address, uint64_t size) const {
  uint64_t count = 0, first = 0;
  for (uint64_t dword = address & ~uint64_t{3}; dword < address + size; dword += 4) {
    const char *shadow = base_ + (dword & UNDEFINED_MASK);
    uint32_t bits;
    std::memcpy(&bits, shadow, sizeof bits);
    if (!bits || std::memcmp(shadow + UNDEFINED_COPY, reinterpret_cast<const void *>(dword), sizeof bits) != 0)
      continue;
    for (uint64_t byte = std::max(dword, address); byte < std::min(dword + 4, address + size); ++byte)
      if (bits >> (byte - dword) * 8 & 0xFF && !count++)
        first = byte;
  }
  return {count, first};
}

void UndefinedMemory::define_all() { madvise(base_, 2 * UNDEFINED_COPY, MADV_DONTNEED); }

void UndefinedMemory::define(uint64_t address, uint64_t size) {
  constexpr uint64_t kPage = 4096;
  char *shadow = base_ + (address & UNDEFINED_MASK);
  const uint64_t first = round_up(address, kPage), last = (address + size) & ~(kPage - 1);
  if (first < last) { // whole pages go back to the system
    madvise(base_ + (first & UNDEFINED_MASK), last - first, MADV_DONTNEED);
    std::memset(shadow, 0, first - address);
    std::memset(base_ + (last & UNDEFINED_MASK), 0, address + size - last);
  } else {
    std::memset(shadow, 0, size);
  }
}

} // namespace luthier
