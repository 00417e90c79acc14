#include "float_checks.h"

#include "bytes.h"

namespace luthier {

using namespace layout;

namespace {

// Return the kinds of floats among a lane's operands.
uint64_t operands_of(const char *what, uint64_t lane) {
  const std::pair<Field, uint64_t> kinds[] = {{floats::operand_nan, FLOAT_NAN},
                                              {floats::operand_infinity, FLOAT_INFINITY},
                                              {floats::operand_denormal, FLOAT_DENORMAL},
                                              {floats::operand_zero, FLOAT_ZERO}};
  uint64_t found = 0;
  for (const auto &[field, bit] : kinds)
    if (get(what, field) >> lane & 1)
      found |= bit;
  return found;
}

} // namespace

void FloatChecks::observe(const Instruction &instruction, const char *what, uint32_t) {
  // Infinity minus infinity is an invalid operation, as IEEE 754 has it, not the way of a NaN.
  const uint64_t from_nan = get(what, floats::operand_nan), from = from_nan | get(what, floats::operand_infinity);
  const uint64_t from_denormal = from | get(what, floats::operand_denormal);
  const struct {
    Field results;
    uint64_t from;
    wire::Sight origin, flow;
  } kinds[] = {
      {floats::nan, from_nan, wire::Sight::kNan, wire::Sight::kNanFlow},
      {floats::infinity, from, wire::Sight::kInfinity, wire::Sight::kInfinityFlow},
      {floats::denormal, from_denormal, wire::Sight::kDenormal, wire::Sight::kDenormalFlow},
  };
  const auto describe = [&](wire::Sighting &found) { found.operands = operands_of(what, found.lane); };
  for (const auto &kind : kinds) {
    const uint64_t lanes = get(what, kind.results);
    if (lanes & ~kind.from)
      note(instruction, kind.origin, lanes & ~kind.from, describe);
    if (flow_ && lanes & kind.from)
      note(instruction, kind.flow, lanes & kind.from, describe);
  }
}

} // namespace luthier
