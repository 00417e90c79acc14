#include "float_checks.h"

#include "bytes.h"
#include "take.h"

namespace luthier {

using namespace layout;

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
  for (const auto &kind : kinds) {
    const uint64_t lanes = get(what, kind.results);
    if (lanes & ~kind.from)
      note(instruction, what, kind.origin, lanes & ~kind.from);
    if (flow_ && lanes & kind.from)
      note(instruction, what, kind.flow, lanes & kind.from);
  }
}

void FloatChecks::note(const Instruction &instruction, const char *what, wire::Sight kind, uint64_t lanes) {
  const uint64_t wave = get(instruction.wave, wave::index);
  const uint64_t group = part_.number(get(pointer<const char *>(instruction.wave, wave::group), group::number));
  std::lock_guard lock(mutex_);
  wire::Sighting &found = found_[{instruction.record, kind}];
  const bool is_first = !found.count || std::pair(group, wave) < std::pair(found.group, found.wave);
  found.count += __builtin_popcountll(lanes);
  if (!is_first)
    return;
  found.kind = static_cast<uint64_t>(kind);
  found.kernel = get(plan_, plan::kernel);
  found.record = instruction.record;
  found.lane = __builtin_ctzll(lanes);
  found.wave = wave;
  found.group = group;
  found.operands = 0;
  const std::pair<Field, uint64_t> operands[] = {{floats::operand_nan, FLOAT_NAN},
                                                 {floats::operand_infinity, FLOAT_INFINITY},
                                                 {floats::operand_denormal, FLOAT_DENORMAL},
                                                 {floats::operand_zero, FLOAT_ZERO}};
  for (const auto &[field, bit] : operands)
    if (get(what, field) >> found.lane & 1)
      found.operands |= bit;
}

std::vector<wire::Sighting> FloatChecks::take() {
  std::lock_guard lock(mutex_);
  return luthier::take(found_);
}

} // namespace luthier
