// Learned forms of instructions, which differ only in the registers that they name.
#pragma once

#include "instructions.h"

#include <array>
#include <functional>

namespace luthier {

/// Instructions by their bits without the numbers of VGPRs and SGPRs: most of a program's are equal to others but for
/// these, and LLVM is slow. What is learned is how two probes, decoded by LLVM, follow from their register numbers; an
/// instruction with a register outside its operand's class is left to LLVM. A form replaces another one in its slot.
class Shapes {
public:
  /// Decode the word as LLVM does, and append it to empty columns; return false if that fails.
  using Decode = std::function<bool(uint64_t word, Instructions &out)>;
  /// Isa::takes
  using Takes = std::function<bool(int32_t opcode, size_t operand, int64_t reg, int64_t index)>;

  explicit Shapes(Takes takes) : takes_(std::move(takes)) {}

  /// Append the instruction that these `given` bytes, 4 or 8, are enough for to all columns except `offset` and
  /// `target`, and return its size; 0 if its form is not known, or if it has more than `most` bytes.
  size_t find(uint64_t word, size_t given, size_t most, Instructions &out) const;
  /// Learn from the last instruction of `from`, which has no target and was decoded from the word, once its form is met
  /// a second time.
  void note(uint64_t word, size_t given, const Instructions &from, const Decode &decode);

private:
  static constexpr size_t kSlots = 1 << 11, kMostOperands = 16, kMostFields = 4;
  static constexpr uint8_t kNoField = kMostFields;
  struct Field {
    uint8_t shift = 0, bits = 0;
    uint64_t mask() const { return ((uint64_t(1) << bits) - 1) << shift; }
    int64_t of(uint64_t word) const { return int64_t((word & mask()) >> shift); }
  };
  /// The fields of a word that may be numbers of registers. The word's other bits show which fields it has.
  struct Fields {
    std::array<Field, kMostFields> all;
    size_t count = 0;
    uint64_t mask = 0;
    void add(unsigned shift, unsigned bits);
    uint64_t filled(uint64_t word, int64_t first, int64_t step) const;
  };
  enum class State : uint8_t { kEmpty, kMet, kLearned, kRefused };
  struct Operand {
    int64_t value; ///< of an operand with a field: the register that 0 there would be
    uint8_t field; ///< kNoField: none
    uint8_t kind;
  };
  struct Slot {
    /// The word with 0 in all fields; its bits outside of `varying`; the fields that name registers of operands.
    uint64_t base, fixed, varying;
    int32_t opcode;
    uint32_t flags;
    State state = State::kEmpty;
    uint8_t given, size, operands;
    std::array<Operand, kMostOperands> operand;
  };

  static Fields fields_of(uint64_t word, size_t given);
  static void add_scalar_fields(Fields &fields, uint32_t first);
  static void add_vector_fields(Fields &fields, uint64_t word);
  static size_t place_of(uint64_t base, size_t given) {
    return (base * 0x9e3779b97f4a7c15u >> 40 ^ given) % kSlots; // of Fibonacci hashing
  }
  void learn(Slot &slot, const Fields &fields, uint64_t word, const Instructions &from, const Decode &decode) const;
  bool bind(Slot &slot, size_t number, const Fields &fields, uint64_t word, const std::array<int64_t, 3> &values) const;

  Takes takes_;
  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
};

} // namespace luthier
