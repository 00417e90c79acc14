#include "decision_checks.h"

#include "bytes.h"

namespace luthier {

using namespace layout;

namespace {

wire::FindingKind sight_of(uint64_t kind) {
  return kind == DECIDES_BRANCH    ? wire::FindingKind::kUndefinedBranch
         : kind == DECIDES_ADDRESS ? wire::FindingKind::kUndefinedAddress
                                   : wire::FindingKind::kUndefinedMask;
}

} // namespace

void DecisionChecks::observe(const Instruction &instruction, const char *what, uint32_t) {
  note(instruction, sight_of(get(what, decided::kind)), get(what, decided::lanes), [&](wire::Sighting &sighting) {
    if (get(what, decided::scalar))
      sighting.lane = ABSENT;
  });
}

} // namespace luthier
