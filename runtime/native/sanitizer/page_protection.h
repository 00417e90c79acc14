// Pages that the host may not write, or not access at all, while operations in flight use them. An access lifts the
// protection, is kept, and then takes place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace luthier {

class PageProtection {
public:
  // An access of the host's to protected pages.
  struct Access {
    uint64_t operation, address;
    bool writes;
    size_t count; // of the addresses
    // The instruction's, and those that the calls return to that lead to it; each is behind what it stands for.
    std::array<const void *, 48> returns;
  };

  // Protect whole pages for an operation: from writes, or, unless `is_readable`, from all accesses.
  static void protect(uint64_t operation, uint64_t begin, uint64_t size, bool is_readable);
  // End the protection for an operation.
  static void release(uint64_t operation);
  // End the protection of these bytes before the kernel, or a runtime, accesses them for the program. Return an
  // operation for which they were protected from that; 0: there is none.
  static uint64_t lift(uint64_t address, uint64_t size, bool writes);
  // Return and forget the accesses so far.
  static std::vector<Access> take();
  // Return whether pages are protected.
  static bool is_used();
  // Return whether pages could not be protected, or accesses not be kept.
  static bool has_lost_protections();
  static bool has_lost_accesses();
  // A child of a fork has no protected pages.
  static void before_fork();
  static void after_fork(bool is_child);
};

} // namespace luthier
