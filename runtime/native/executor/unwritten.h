// Contents of unwritten memory of the program: numbers derived from the address, by which it is recognised however
// memory is written. A written dword has the same number with a probability of 2^-32. Programs that write parts of
// dwords mostly write small numbers or all ones, so no byte of the contents is 0, 1 or 255.
#pragma once

#include <cstdint>
#include <cstring>

namespace luthier {

// Larger allocations are not filled: that would make the system commit their memory.
inline constexpr uint64_t kMostUnwritten = uint64_t{256} << 20;

inline constexpr uint64_t kUnwrittenFactor = 0x9E3779B97F4A7C15;

inline uint32_t unwritten(uint64_t address) {
  const auto number = static_cast<uint32_t>((address >> 2) * kUnwrittenFactor >> 32);
  uint32_t usual = 0; // bit 7 of each byte that is 0, 1 or 255
  for (unsigned shift = 0; shift < 32; shift += 8)
    usual |= uint32_t{static_cast<uint8_t>((number >> shift) + 1) < 3} << (shift + 7);
  return number ^ (usual | usual >> 2); // 0xA0, 0xA1, 0x5F
}

// Fill memory with the contents that mark it as unwritten.
inline void leave_unwritten(uint64_t address, uint64_t size) {
  for (uint64_t at = (address + 3) & ~uint64_t{3}; at + 4 <= address + size; at += 4) {
    const uint32_t value = unwritten(at);
    std::memcpy(reinterpret_cast<void *>(at), &value, sizeof value);
  }
}

// Return whether all dwords of these bytes have the contents of unwritten memory.
inline bool is_unwritten(uint64_t address, uint64_t size) {
  for (uint64_t at = address & ~uint64_t{3}; at < address + size; at += 4) {
    uint32_t value;
    std::memcpy(&value, reinterpret_cast<const void *>(at), sizeof value);
    if (value != unwritten(at))
      return false;
  }
  return true;
}

// Return whether the first dword of a lane may be unwritten; false for most written memory. Lanes are at multiples of
// four, `apart` bytes apart.
inline bool some_unwritten(uint64_t address, uint64_t apart, unsigned count) {
  constexpr uint32_t kAsMade = 0x5F5F5F5F; // bits that are as in the number
  uint64_t number = (address >> 2) * kUnwrittenFactor;
  bool some = false;
  for (unsigned lane = 0; lane < count; ++lane) {
    uint32_t value;
    std::memcpy(&value, reinterpret_cast<const void *>(address + lane * apart), sizeof value);
    some |= ((value ^ static_cast<uint32_t>(number >> 32)) & kAsMade) == 0;
    number += (apart >> 2) * kUnwrittenFactor;
  }
  return some;
}

} // namespace luthier
