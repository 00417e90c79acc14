#include "float_checks.h"

#include <tuple>

#include "bytes.h"
#include "origins.h"

namespace luthier {

using namespace layout;

namespace {

// Return the kinds of floats among a lane's operands.
uint64_t operands_of(const char *what, uint64_t lane) {
  const std::pair<Field, uint64_t> kinds[] = {{floats::operand_nan, FLOAT_NAN},
                                              {floats::operand_infinity, FLOAT_INFINITY},
                                              {floats::operand_denormal, FLOAT_DENORMAL},
                                              {floats::operand_zero, FLOAT_ZERO}};
  uint64_t operands = 0;
  for (const auto &[field, bit] : kinds)
    if (get(what, field) >> lane & 1)
      operands |= bit;
  return operands;
}

} // namespace

void FloatChecks::observe(const Instruction &instruction, const char *what, uint32_t event) {
  const uint64_t kernel = get(plan(), plan::kernel);
  if (event == EVENT_FOLLOWED) {
    if (launch_)
      Origins::nans().accessed(instruction, what, pointer<const uint16_t *>(plan(), plan::uses)[instruction.record],
                               kernel, *launch_);
    return;
  }
  if (launch_ && get(what, floats::nan))
    Origins::nans().made(instruction, kernel);
  const std::tuple<Field, wire::FindingKind, bool> kinds[] = {
      {floats::nan, wire::FindingKind::kNan, true},
      {floats::infinity, wire::FindingKind::kInfinity, true},
      {floats::denormal, wire::FindingKind::kDenormal, true},
      {floats::nan_flow, wire::FindingKind::kNanFlow, flow_},
      {floats::infinity_flow, wire::FindingKind::kInfinityFlow, flow_},
      {floats::denormal_flow, wire::FindingKind::kDenormalFlow, flow_},
  };
  for (const auto &[field, kind, is_wanted] : kinds)
    if (const uint64_t lanes = get(what, field); lanes && is_wanted)
      note(instruction, kind, lanes, [&](wire::Sighting &sighting) {
        sighting.operands = operands_of(what, sighting.lane);
        if (launch_ && kind == wire::FindingKind::kNanFlow)
          sighting.origins = get(instruction.wave, wave::nans) + 1;
      });
}

} // namespace luthier
