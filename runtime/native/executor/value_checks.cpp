#include "value_checks.h"

#include "grid.h"
#include "take.h"

namespace luthier {

void ValueChecks::note(const Instruction &instruction, wire::FindingKind kind, uint64_t lanes,
                       const std::function<void(wire::Sighting &)> &describe, unsigned side) {
  const uint64_t wave = get(instruction.wave, layout::wave::index);
  const uint64_t group = group_number(pointer<const char *>(instruction.wave, layout::wave::group));
  std::lock_guard lock(mutex_);
  wire::Sighting &sighting = found_[{instruction.record, kind, side}];
  const bool is_first = !sighting.count || std::pair(group, wave) < std::pair(sighting.group, sighting.wave);
  sighting.count += __builtin_popcountll(lanes);
  if (!is_first)
    return;
  sighting.kind = static_cast<uint64_t>(kind);
  sighting.kernel = get(plan_, layout::plan::kernel);
  sighting.record = instruction.record;
  sighting.lane = __builtin_ctzll(lanes);
  sighting.wave = wave;
  sighting.group = group;
  describe(sighting);
}

std::vector<wire::Sighting> ValueChecks::take() {
  std::lock_guard lock(mutex_);
  return luthier::take(found_);
}

} // namespace luthier
