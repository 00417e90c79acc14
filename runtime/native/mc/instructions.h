// Decoded instructions.
#pragma once

#include <cstdint>
#include <vector>

namespace luthier {

constexpr int64_t kNoTarget = INT64_MIN;

enum OperandKind : uint8_t {
  kKindRegister = 1,   ///< value: LLVM register number
  kKindImmediate = 2,  ///< value: the immediate as LLVM holds it
  kKindExpression = 3, ///< value: index of the fixup
  kKindLiteral = 4,    ///< value: an immediate that must be encoded as a 32-bit literal although it would fit inline
  kKindLiteral64 = 5,  ///< the same as a 64-bit literal
};

/// Instructions in columns; operands of instruction i are [operand_start[i], operand_start[i + 1]).
struct Instructions {
  std::vector<int64_t> offset;
  std::vector<int32_t> size;
  std::vector<int32_t> opcode;
  std::vector<uint32_t> flags;
  std::vector<int64_t> target;
  std::vector<int32_t> operand_start;
  std::vector<uint8_t> operand_kind;
  std::vector<int64_t> operand_value;
};

} // namespace luthier
