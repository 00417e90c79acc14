// What decoding has found before.
#pragma once

#include "instructions.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Endian.h"

#include <algorithm>
#include <array>

namespace luthier {

/// What bytes mean that were enough for an instruction, unless it names an address: libraries repeat themselves, and
/// LLVM takes long. What comes to the same slot takes the place of what was there.
class Repeats {
public:
  /// Append the instruction that these bytes make to all columns but `offset` and `target`, and return its size; 0
  /// where it is not known, or has more than `most` bytes.
  size_t find(llvm::ArrayRef<uint8_t> bytes, size_t most, Instructions &out) const {
    const uint64_t word = wordOf(bytes);
    const Slot &found = slots_[placeOf(word)];
    if (found.word != word || found.given != bytes.size() || found.size > most)
      return 0;
    out.size.push_back(found.size);
    out.opcode.push_back(found.opcode);
    out.flags.push_back(found.flags);
    out.operandKind.insert(out.operandKind.end(), found.kinds.begin(), found.kinds.begin() + found.operands);
    out.operandValue.insert(out.operandValue.end(), found.values.begin(), found.values.begin() + found.operands);
    out.operandStart.push_back(int32_t(out.operandKind.size()));
    return found.size;
  }
  /// Keep the last instruction of `from`, which these bytes have made.
  void note(llvm::ArrayRef<uint8_t> bytes, const Instructions &from) {
    const size_t last = from.opcode.size() - 1, first = size_t(from.operandStart[last]);
    const size_t operands = size_t(from.operandStart[last + 1]) - first;
    const auto fits = [](int64_t value) { return value == int32_t(value); };
    if (operands > MostOperands ||
        !std::all_of(from.operandValue.begin() + ptrdiff_t(first), from.operandValue.end(), fits))
      return;
    const uint64_t word = wordOf(bytes);
    Slot &slot = slots_[placeOf(word)];
    slot = {
        word, from.opcode[last], from.flags[last], uint8_t(bytes.size()), uint8_t(from.size[last]), uint8_t(operands)};
    std::copy_n(from.operandKind.begin() + ptrdiff_t(first), operands, slot.kinds.begin());
    std::copy_n(from.operandValue.begin() + ptrdiff_t(first), operands, slot.values.begin());
  }

private:
  static constexpr size_t Slots = 1 << 14, MostOperands = 16;
  struct Slot {
    uint64_t word;
    int32_t opcode;
    uint32_t flags;
    uint8_t given; ///< bytes; 0: there is nothing
    uint8_t size, operands;
    std::array<uint8_t, MostOperands> kinds;
    std::array<int32_t, MostOperands> values;
  };

  static uint64_t wordOf(llvm::ArrayRef<uint8_t> bytes) {
    const uint64_t second = bytes.size() > 4 ? llvm::support::endian::read32le(bytes.data() + 4) : 0;
    return second << 32 | llvm::support::endian::read32le(bytes.data());
  }
  static size_t placeOf(uint64_t word) {
    return (word * 0x9e3779b97f4a7c15u >> 40) % Slots; // of Fibonacci hashing
  }

  std::vector<Slot> slots_ = std::vector<Slot>(Slots);
};

} // namespace luthier
