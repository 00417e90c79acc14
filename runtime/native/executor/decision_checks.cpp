#include "decision_checks.h"

#include "bytes.h"
#include "take.h"

namespace luthier {

using namespace layout;

namespace {

wire::Sight sight_of(uint64_t kind) {
  return kind == DECIDES_BRANCH    ? wire::Sight::kUndefinedBranch
         : kind == DECIDES_ADDRESS ? wire::Sight::kUndefinedAddress
                                   : wire::Sight::kUndefinedMask;
}

} // namespace

void DecisionChecks::observe(const Instruction &instruction, const char *what, uint32_t) {
  const wire::Sight kind = sight_of(get(what, decided::kind));
  const uint64_t lanes = get(what, decided::lanes), wave = get(instruction.wave, wave::index);
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
  found.lane = get(what, decided::scalar) ? ABSENT : __builtin_ctzll(lanes);
  found.wave = wave;
  found.group = group;
}

std::vector<wire::Sighting> DecisionChecks::take() {
  std::lock_guard lock(mutex_);
  return luthier::take(found_);
}

} // namespace luthier
