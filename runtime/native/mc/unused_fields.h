// Gaps in LLVM's decoder: fields that an instruction does not use, and lengths of instructions that LLVM does not know.
#pragma once

#include "isa.h"

#include <array>

namespace luthier {

constexpr size_t kLongestInstruction = 32; // bytes; more than any encoding with its literal
using Words = std::array<uint32_t, kLongestInstruction / 4>;

/// Bits of an instruction that mean nothing to the hardware, unless it has an operand of this name.
struct UnusedField {
  static constexpr unsigned kNoOperand = ~0u;
  unsigned first;   ///< number of the lowest bit
  unsigned bits;    ///< how many, in one word
  uint32_t wanted;  ///< the value that LLVM's decoder wants there
  unsigned operand; ///< of OperandNames; kNoOperand if no instruction of this encoding uses the bits

  void set_in(Words &words) const { put(words, wanted); }
  void copy(const Words &from, Words &to) const { put(to, from[first / 32] >> first % 32 & mask()); }

private:
  uint32_t mask() const { return (uint32_t(1) << bits) - 1; }
  void put(Words &words, uint32_t value) const {
    uint32_t &word = words[first / 32];
    word = (word & ~(mask() << first % 32)) | value << first % 32;
  }
};

/// Return the fields that instructions of this encoding may leave unused. `wide`: of GFX1250.
std::vector<UnusedField> unused_fields(const Words &words, bool wide);

/// Return whether the words are the first half of an instruction of 16 bytes, which LLVM would read as an instruction
/// of its own where it does not know the second half (GFX1250).
bool is_scale_half(const Words &words, bool wide);

/// Return the length of an instruction of GFX1250 from its encoding, in bytes; 0 if no document gives it, or if the
/// encoding includes branches.
unsigned length_of_encoding(const Words &words);

} // namespace luthier
