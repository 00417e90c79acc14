// Gaps in LLVM's decoder: fields that an instruction does not use, and the lengths of instructions that it does not
// know.
#pragma once

#include "isa.h"

#include <array>

namespace luthier {

constexpr size_t LongestInstruction = 32; // bytes; more than any encoding with its literal
using Words = std::array<uint32_t, LongestInstruction / 4>;

/// Bits of an instruction that mean nothing to the hardware, unless it has an operand of this name.
struct UnusedField {
  static constexpr unsigned NoOperand = ~0u;
  unsigned first;   ///< number of the lowest bit
  unsigned bits;    ///< how many, in one word
  uint32_t wanted;  ///< what LLVM's decoder wants there
  unsigned operand; ///< of OperandNames; NoOperand where no instruction that the words can be uses the bits

  void setIn(Words &words) const { put(words, wanted); }
  void copy(const Words &from, Words &to) const { put(to, from[first / 32] >> first % 32 & mask()); }

private:
  uint32_t mask() const { return (uint32_t(1) << bits) - 1; }
  void put(Words &words, uint32_t value) const {
    uint32_t &word = words[first / 32];
    word = (word & ~(mask() << first % 32)) | value << first % 32;
  }
};

/// The fields that instructions of this encoding may leave unused. `wide`: of GFX1250.
std::vector<UnusedField> unusedFields(const Words &words, bool wide);

/// Return whether the words are the first half of an instruction of 16 bytes, which LLVM would read as an instruction
/// of its own where it does not know the second half (GFX1250).
bool isScaleHalf(const Words &words, bool wide);

/// Return the bytes of an instruction of GFX1250 by its encoding alone, 0 where no document gives them, or the encoding
/// has instructions that pass control elsewhere.
unsigned lengthOfEncoding(const Words &words);

} // namespace luthier
