// A cache of decoded instructions.
#pragma once

#include "shapes.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Endian.h"

#include <algorithm>
#include <array>

namespace luthier {

/// Instructions by the bytes that were enough to decode them, except those with an address: libraries repeat
/// instructions, and LLVM is slow. An instruction replaces another one in the same slot.
class Repeats {
public:
  explicit Repeats(Shapes::Takes takes) : shapes_(std::move(takes)) {}

  /// Append the instruction of these bytes to all columns except `offset` and `target`, and return its size; 0 if it is
  /// not known, or has more than `most` bytes.
  size_t find(llvm::ArrayRef<uint8_t> bytes, size_t most, Instructions &out) const {
    const uint64_t word = word_of(bytes);
    if (const size_t size = shapes_.find(word, bytes.size(), most, out))
      return size;
    const Slot &slot = slots_[place_of(word)];
    if (slot.word != word || slot.given != bytes.size() || slot.size > most)
      return 0;
    out.size.push_back(slot.size);
    out.opcode.push_back(slot.opcode);
    out.flags.push_back(slot.flags);
    out.operand_kind.insert(out.operand_kind.end(), slot.kinds.begin(), slot.kinds.begin() + slot.operands);
    out.operand_value.insert(out.operand_value.end(), slot.values.begin(), slot.values.begin() + slot.operands);
    out.operand_start.push_back(int32_t(out.operand_kind.size()));
    return slot.size;
  }
  /// Keep the last instruction of `from`, which was decoded from these bytes.
  void note(llvm::ArrayRef<uint8_t> bytes, const Instructions &from, const Shapes::Decode &decode) {
    shapes_.note(word_of(bytes), bytes.size(), from, decode);
    const size_t last = from.opcode.size() - 1, first = size_t(from.operand_start[last]);
    const size_t operands = size_t(from.operand_start[last + 1]) - first;
    const auto fits = [](int64_t value) { return value == int32_t(value); };
    if (operands > kMostOperands ||
        !std::all_of(from.operand_value.begin() + ptrdiff_t(first), from.operand_value.end(), fits))
      return;
    const uint64_t word = word_of(bytes);
    Slot &slot = slots_[place_of(word)];
    slot = {
        word, from.opcode[last], from.flags[last], uint8_t(bytes.size()), uint8_t(from.size[last]), uint8_t(operands)};
    std::copy_n(from.operand_kind.begin() + ptrdiff_t(first), operands, slot.kinds.begin());
    std::copy_n(from.operand_value.begin() + ptrdiff_t(first), operands, slot.values.begin());
  }

private:
  static constexpr size_t kSlots = 1 << 14, kMostOperands = 16;
  struct Slot {
    uint64_t word;
    int32_t opcode;
    uint32_t flags;
    uint8_t given; ///< bytes; 0: there is nothing
    uint8_t size, operands;
    std::array<uint8_t, kMostOperands> kinds;
    std::array<int32_t, kMostOperands> values;
  };

  static uint64_t word_of(llvm::ArrayRef<uint8_t> bytes) {
    const uint64_t second = bytes.size() > 4 ? llvm::support::endian::read32le(bytes.data() + 4) : 0;
    return second << 32 | llvm::support::endian::read32le(bytes.data());
  }
  static size_t place_of(uint64_t word) {
    return (word * 0x9e3779b97f4a7c15u >> 40) % kSlots; // of Fibonacci hashing
  }

  Shapes shapes_;
  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
};

} // namespace luthier
