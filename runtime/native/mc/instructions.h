// Decoded instructions.
#pragma once

#include <cstdint>
#include <vector>

namespace luthier {

constexpr int64_t NoTarget = INT64_MIN;

/// Instructions in columns; operands of instruction i are [operandStart[i], operandStart[i + 1]).
struct Instructions {
  std::vector<int64_t> offset;
  std::vector<int32_t> size;
  std::vector<int32_t> opcode;
  std::vector<uint32_t> flags;
  std::vector<int64_t> target;
  std::vector<int32_t> operandStart;
  std::vector<uint8_t> operandKind;
  std::vector<int64_t> operandValue;
};

} // namespace luthier
