#include "value_checks.h"

#include "grid.h"
#include "take.h"

namespace luthier {

void ValueChecks::note(const Instruction &instruction, wire::FindingKind kind, uint64_t lanes,
                       const std::function<void(wire::Sighting &)> &describe, unsigned side) {
  const uint64_t wave = get(instruction.wave, layout::wave::index);
  const uint64_t group = group_number(pointer<const char *>(instruction.wave, layout::wave::group));
  std::lock_guard lock(mutex_);
  wire::Sighting &found = found_[{instruction.record, kind, side}];
  const bool is_first = !found.count || std::pair(group, wave) < std::pair(found.group, found.wave);
  found.count += __builtin_popcountll(lanes);
  if (!is_first)
    return;
  found.kind = static_cast<uint64_t>(kind);
  found.kernel = get(plan_, layout::plan::kernel);
  found.record = instruction.record;
  found.lane = __builtin_ctzll(lanes);
  found.wave = wave;
  found.group = group;
  describe(found);
}

std::vector<wire::Sighting> ValueChecks::take() {
  std::lock_guard lock(mutex_);
  return luthier::take(found_);
}

} // namespace luthier
