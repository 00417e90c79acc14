#include "decision_checks.h"

#include "bytes.h"
#include "grid.h"
#include "origins.h"

namespace luthier {

using namespace layout;

namespace {

wire::FindingKind sight_of(uint64_t kind) {
  return kind == DECIDES_BRANCH    ? wire::FindingKind::kUndefinedBranch
         : kind == DECIDES_ADDRESS ? wire::FindingKind::kUndefinedAddress
                                   : wire::FindingKind::kUndefinedMask;
}

std::pair<uint64_t, uint64_t> name_of(const char *wave) {
  return {group_number(pointer<const char *>(wave, layout::wave::group)), get(wave, layout::wave::index)};
}

} // namespace

void DecisionChecks::begin(const char *plan) {
  ValueChecks::begin(plan);
  std::lock_guard lock(mutex_);
  takers_.clear();
}

std::optional<uint32_t> DecisionChecks::taker_of(const char *wave) {
  std::lock_guard lock(mutex_);
  const auto taker = takers_.find(name_of(wave));
  return taker == takers_.end() ? std::nullopt : std::optional(taker->second);
}

void DecisionChecks::observe(const Instruction &instruction, const char *what, uint32_t) {
  const uint64_t kind = get(what, decided::kind), lanes = get(what, decided::lanes);
  const uint64_t sources = get(plan(), plan::undefined);
  if (kind == TAKES_INACTIVE) {
    std::lock_guard lock(mutex_);
    takers_[name_of(instruction.wave)] = instruction.record;
    return;
  }
  if (kind == LOADS_UNDEFINED || kind == STORES_UNDEFINED) {
    if (launch_ && kind == LOADS_UNDEFINED)
      Origins::undefined().loaded(instruction, what, get(plan(), plan::kernel));
    else if (launch_)
      Origins::undefined().stored(instruction, what, get(plan(), plan::kernel), *launch_);
    return;
  }
  if (kind == NAMES_BEYOND) {
    note(instruction, wire::FindingKind::kBeyondWave, lanes, [&](wire::Sighting &sighting) {
      if (get(what, decided::scalar))
        sighting.lane = ABSENT;
    });
    return;
  }
  if (kind == LOSES_HALF) {
    if (pointer<const uint16_t *>(plan(), plan::uses)[instruction.record] & USE_HALF)
      note(instruction, wire::FindingKind::kHalfMask, lanes, [](wire::Sighting &) {});
    return;
  }
  // Undefined bits do not say from which source they come. Values that were never written may be stored.
  const bool may_be_unwritten = sources & UNWRITTEN_VALUES;
  const auto taker = taker_of(instruction.wave);
  if (may_be_unwritten ? kind == DECIDES_STORE : !taker)
    return; // without a taker it comes from another wave, which was reported where it stored the value
  note(
      instruction, taker ? wire::FindingKind::kInactiveLane : sight_of(kind), lanes,
      [&](wire::Sighting &sighting) {
        if (get(what, decided::scalar))
          sighting.lane = ABSENT;
        if (!taker) {
          if (launch_)
            sighting.origins = get(instruction.wave, wave::origins) + 1;
          return;
        }
        sighting.operands = kind;
        sighting.has_other = true;
        sighting.other_record = *taker;
        sighting.other_wave = sighting.wave;
        sighting.other_group = sighting.group;
      },
      taker ? kind : 0);
}

} // namespace luthier
