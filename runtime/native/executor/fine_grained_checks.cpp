#include "fine_grained_checks.h"

#include <algorithm>

#include "program_memory.h"

namespace luthier {

using namespace layout;

void FineGrainedChecks::begin(const char *plan, std::shared_ptr<const FineRanges> ranges) {
  ValueChecks::begin(plan);
  ranges_ = std::move(ranges);
}

void FineGrainedChecks::observe(const Instruction &instruction, const char *access, uint32_t) {
  if (ranges_->empty())
    return;
  const uint64_t mask = get(access, access::mask), size = get(access, access::size);
  const bool is_row = get(access, access::kind) == ACCESS_ROW;
  const auto address_of = [&](uint64_t lane) {
    uint64_t address;
    std::memcpy(&address, access + access::addresses.offset + (is_row ? 0 : lane) * sizeof address, sizeof address);
    return address + (is_row ? lane * size : 0);
  };
  const auto range_of = [&](uint64_t address) {
    const auto after = std::upper_bound(ranges_->begin(), ranges_->end(), address,
                                        [](uint64_t wanted, const FineRange &range) { return wanted < range.address; });
    return after == ranges_->begin() || address - after[-1].address >= after[-1].size ? ranges_->end() : after - 1;
  };
  for (uint64_t left = mask; left;) {
    const auto range = range_of(address_of(__builtin_ctzll(left)));
    uint64_t lanes = 0;
    for (uint64_t rest = left; rest; rest &= rest - 1)
      if (range_of(address_of(__builtin_ctzll(rest))) == range)
        lanes |= rest & -rest;
    left &= ~lanes;
    if (range == ranges_->end())
      continue;
    const auto describe = [&](wire::Sighting &sighting) {
      sighting.address = address_of(sighting.lane);
      sighting.size = size;
      sighting.operands = range->kind;
      if (const auto near = ProgramMemory::get().nearest(sighting.address); near && near->has(sighting.address))
        near->put_into(sighting);
    };
    note(instruction, wire::FindingKind::kUnsafeAtomic, lanes, describe, range - ranges_->begin());
  }
}

} // namespace luthier
