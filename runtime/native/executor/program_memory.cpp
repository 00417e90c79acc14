#include "program_memory.h"

#include <algorithm>

#include "wire.h"

namespace luthier {

namespace {

// Bytes around a code object within which an access may be meant for its variables.
constexpr uint64_t kNearModule = 1 << 16;

} // namespace

ProgramMemory &ProgramMemory::get() {
  static ProgramMemory *const memory = new ProgramMemory; // never destroyed: queues run until the process ends
  return *memory;
}

void ProgramMemory::allocated(uint64_t address, uint64_t size, uint64_t reserved, CallTrace calls) {
  std::lock_guard lock(mutex_);
  unite(address);
  extents_[address] = {address, size, std::max(size, reserved), ++number_, false, 0, 0, calls};
  knows_allocations_ = true;
  ++version_;
}

void ProgramMemory::fine_grained(uint64_t address) {
  std::lock_guard lock(mutex_);
  if (const auto extent = extents_.find(address); extent != extents_.end()) {
    extent->second.is_fine_grained = true;
    ++version_;
  }
}

FineRanges ProgramMemory::fine_grained() const {
  std::lock_guard lock(mutex_);
  FineRanges ranges;
  for (const auto *extents : {&extents_, &wholes_})
    for (const auto &[address, extent] : *extents)
      if (extent.is_fine_grained && extent.size)
        ranges.push_back({address, extent.size, wire::kFineDevice});
  return ranges;
}

ProgramMemory::Division ProgramMemory::divided(uint64_t address, uint64_t size, CallTrace calls,
                                               std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto within = [&](std::map<uint64_t, Extent> &extents) {
    auto extent = extents.upper_bound(address);
    if (extent == extents.begin())
      return extents.end();
    --extent;
    const Extent &nearest = extent->second;
    const bool fits = nearest.has(address) && size <= nearest.size - (address - nearest.address);
    return fits && !nearest.freed && !nearest.module ? extent : extents.end();
  };
  auto whole = within(wholes_);
  if (whole == wholes_.end()) {
    const auto undivided = within(extents_);
    if (undivided == extents_.end())
      return Division::kNoAllocation;
    whole = wholes_.insert(*undivided).first;
    undivided->second.size = 0; // a hole in front of the first part
  }
  const uint64_t end = whole->first + whole->second.reserved;
  const auto is_live = [=](const Extent &part) {
    return part.size && !part.freed && part.address < address + size && address < part.address + part.size;
  };
  auto earlier = extents_.lower_bound(address);
  if (earlier != extents_.begin() && is_live(std::prev(earlier)->second))
    return Division::kOverlap;
  for (auto each = earlier; each != extents_.end() && each->first < address + size; ++each)
    if (is_live(each->second))
      return Division::kOverlap;
  // Memory of freed parts that the new one takes is its own.
  while (earlier != extents_.end() && earlier->first < address + size)
    earlier = extents_.erase(earlier);
  if (earlier != extents_.begin())
    if (Extent &before = std::prev(earlier)->second; before.has(address))
      before.size = address - before.address;
  const std::string *const kept = name.empty() ? nullptr : &*names_.emplace(name).first;
  extents_[address] = {address, size, end - address, ++number_, false, 0, 0, calls, nullptr, kept};
  ++version_;
  return Division::kDone;
}

// Replace the parts of an allocation by the allocation.
void ProgramMemory::unite(uint64_t address) {
  const auto whole = wholes_.find(address);
  if (whole == wholes_.end())
    return;
  const uint64_t end = address + std::max<uint64_t>(whole->second.size, 1);
  extents_.erase(extents_.lower_bound(address), extents_.lower_bound(end));
  extents_[address] = whole->second;
  wholes_.erase(whole);
}

void ProgramMemory::freed(uint64_t address, CallTrace calls) {
  {
    std::lock_guard lock(mutex_);
    unite(address);
  }
  part_freed(address, calls);
}

void ProgramMemory::part_freed(uint64_t address, CallTrace calls) {
  std::lock_guard lock(mutex_);
  if (const auto extent = extents_.find(address); extent != extents_.end()) {
    extent->second.freed = true;
    extent->second.freed_by = calls;
    ++version_;
  }
}

uint64_t ProgramMemory::forget(uint64_t address) {
  std::lock_guard lock(mutex_);
  unite(address);
  const auto extent = extents_.find(address);
  if (extent == extents_.end())
    return 0;
  const uint64_t reserved = extent->second.reserved;
  extents_.erase(extent);
  ++version_;
  return reserved;
}

void ProgramMemory::loaded(uint64_t module, uint64_t end, const std::vector<Extent> &variables) {
  std::lock_guard lock(mutex_);
  modules_.insert(module);
  for (Extent variable : variables) {
    variable.number = ++number_;
    variable.module = module - std::min(module, kNearModule);
    variable.module_end = end + kNearModule;
    extents_[variable.address] = variable;
  }
  version_ += !variables.empty();
}

bool ProgramMemory::has_module(uint64_t module) const {
  std::lock_guard lock(mutex_);
  return modules_.count(module) != 0;
}

void ProgramMemory::unloaded(uint64_t address, uint64_t size) {
  std::lock_guard lock(mutex_);
  const auto first = modules_.lower_bound(address), last = modules_.lower_bound(address + size);
  if (first == last)
    return;
  modules_.erase(first, last);
  for (auto each = extents_.lower_bound(address); each != extents_.end() && each->first < address + size;)
    each = each->second.module ? extents_.erase(each) : std::next(each);
  ++version_;
}

std::optional<Extent> ProgramMemory::nearest(uint64_t address, uint64_t *in_front) const {
  std::lock_guard lock(mutex_);
  auto after = extents_.upper_bound(address), before = after;
  const Extent *below = nullptr;
  const auto counts = [=](const Extent &extent) {
    return extent.size && (!extent.module || (address >= extent.module && address < extent.module_end));
  };
  while (!below && before != extents_.begin())
    if (counts((--before)->second))
      below = &before->second;
  while (after != extents_.end() && !counts(after->second))
    ++after;
  const Extent *above = after == extents_.end() ? nullptr : &after->second;
  const bool in = below && below->has(address);
  if (below && above && !in && above->address - address <= address - (below->address + below->size)) {
    if (in_front)
      *in_front = below->number;
    return *above;
  }
  if (below || above)
    return below ? *below : *above;
  return std::nullopt;
}

std::optional<Extent> ProgramMemory::at(uint64_t address, uint64_t size) const {
  std::lock_guard lock(mutex_);
  if (const auto whole = wholes_.find(address); whole != wholes_.end() && whole->second.size == size)
    return whole->second;
  const auto extent = extents_.find(address);
  return extent == extents_.end() ? std::nullopt : std::optional(extent->second);
}

std::optional<Extent> ProgramMemory::part_around(uint64_t address) const {
  std::lock_guard lock(mutex_);
  const auto around = [=](const std::map<uint64_t, Extent> &extents) -> const Extent * {
    const auto after = extents.upper_bound(address);
    return after != extents.begin() && std::prev(after)->second.has(address) ? &std::prev(after)->second : nullptr;
  };
  const Extent *part = around(wholes_) ? around(extents_) : nullptr;
  return part ? std::optional(*part) : std::nullopt;
}

uint64_t ProgramMemory::version() const {
  std::lock_guard lock(mutex_);
  return version_;
}

bool ProgramMemory::knows_allocations() const {
  std::lock_guard lock(mutex_);
  return knows_allocations_;
}

RangeTable ProgramMemory::without_holes(const RangeTable &table, size_t rows) const {
  std::lock_guard lock(mutex_);
  RangeTable left;
  left.aliases = table.aliases;
  for (const auto &row : table.rows) {
    uint64_t at = row.address;
    const uint64_t end = row.address + row.size;
    auto extent = extents_.upper_bound(at);
    if (extent != extents_.begin())
      --extent; // its reserved bytes may extend into the row
    for (; row.size && extent != extents_.end() && extent->first < end; ++extent) {
      const Extent &known = extent->second;
      const auto next = std::next(extent);
      uint64_t last = known.address + known.reserved;
      if (next != extents_.end())
        last = std::min(last, next->first);
      const uint64_t first = known.freed ? known.address : known.address + known.size;
      if (last <= at || first >= last)
        continue;
      if (first > at)
        left.rows.push_back({at, std::min(first, end) - at});
      at = std::max(at, std::min(last, end));
    }
    if (at < end)
      left.rows.push_back({at, end - at});
  }
  left.rows.resize(std::max(rows, left.rows.size() + 1), {~0ull, 0});
  return left;
}

} // namespace luthier
