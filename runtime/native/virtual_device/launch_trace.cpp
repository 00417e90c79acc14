#include "launch_trace.h"

#include "program_memory.h"
#include "take.h"

namespace luthier {

using namespace layout;

namespace {

bool is_written(const History &history) { return history.by[kLastWrite].segment || history.by[kLastAtomic].segment; }

} // namespace

LaunchTrace::LaunchTrace(std::shared_ptr<const AccessChecks> checks, uint64_t launch, const Memory &memory)
    : checks_(std::move(checks)), launch_(launch) {
  const Shadow &shadow = checks_->memory();
  struct Effects {
    uint32_t history;
    bool stores, writes;
  } last{0, false, false}; // neighbours mostly have the same history
  const auto effects_of = [&](uint32_t number) -> const Effects & {
    if (number != last.history) {
      const History &history = checks_->histories()[number];
      last = {number, history.by[kLastWrite].segment != 0, is_written(history)};
    }
    return last;
  };
  const std::vector<uint64_t> numbers = shadow.pages();
  pages_.reserve(numbers.size());
  for (const uint64_t number : numbers) {
    Page &page = pages_.emplace_back(Page{number, {}});
    if (!shadow.is_written(number))
      continue;
    bool writes = false;
    shadow.each_line(number, [&](const Shadow::View &line) {
      bool stores = false;
      for (unsigned byte = 0; byte < Shadow::kLine; byte += line.alike(byte)) {
        const Effects &known = effects_of(line.history(byte));
        stores |= known.stores;
        writes |= known.writes;
      }
      if (stores) {
        uint32_t *const left = contents_.take(Shadow::kDwords);
        std::memcpy(left, reinterpret_cast<const void *>(line.address), Shadow::kLine);
        page.left[line.address % kPageSize / Shadow::kLine] = reinterpret_cast<const char *>(left);
      }
    });
    tells_ |= writes && !memory.is_private(number * kPageSize);
  }
}

std::vector<LaunchTrace::Page>::const_iterator LaunchTrace::page_from(uint64_t address) const {
  return std::lower_bound(pages_.begin(), pages_.end(), address / kPageSize,
                          [](const Page &page, uint64_t number) { return page.number < number; });
}

const char *LaunchTrace::left_in(uint64_t line) const {
  const auto page = page_from(line);
  return page != pages_.end() && page->number == line / kPageSize ? page->left[line % kPageSize / Shadow::kLine]
                                                                  : nullptr;
}

// Calls `each(line)` for all lines that have a part in these bytes.
template <typename Each> void LaunchTrace::each_line(const Bytes &bytes, Each each) const {
  const uint64_t last = (bytes.address + bytes.size - 1) / kPageSize;
  for (auto page = page_from(bytes.address); bytes.size && page != pages_.end() && page->number <= last; ++page)
    checks_->memory().each_line(page->number, [&](const Shadow::View &line) {
      if (bytes.touches({line.address, Shadow::kLine}))
        each(line);
    });
}

bool LaunchTrace::writes(const Bytes &bytes) const {
  bool written = false;
  each_line(bytes, [&](const Shadow::View &line) {
    for (unsigned byte = 0; byte < Shadow::kLine && !written; byte += 1u << line.shift)
      written = bytes.touches({line.address + byte, 1u << line.shift}) && is_written(history(line, byte));
  });
  return written;
}

bool LaunchTrace::hears_of(const LaunchTrace &other) const {
  return std::any_of(checks_->heard().begin(), checks_->heard().end(),
                     [&](uint64_t dword) { return other.writes({dword * 4, 4}); });
}

bool LaunchTrace::hears_of(const CopiedBytes &other) const {
  return std::any_of(checks_->heard().begin(), checks_->heard().end(),
                     [&](uint64_t dword) { return other.to.touches({dword * 4, 4}); });
}

// A plain read beside an atomic is not a race: programs are correct with either value.
LaunchTrace::Pair LaunchTrace::pair_of(const History &own, const History &other, bool same_value) {
  const auto have = [&](Role first, Role second) { return own.by[first].segment && other.by[second].segment; };
  if (have(kLastWrite, kLastWrite) && !same_value)
    return {kLastWrite, kLastWrite};
  for (const Role role : {kLastAtomic, kLastRead}) {
    if (have(kLastWrite, role))
      return {kLastWrite, role};
    if (have(role, kLastWrite))
      return {role, kLastWrite};
  }
  return {};
}

// Return whether both launches have left the same bytes there: programs set flags that way.
bool LaunchTrace::left_alike(const LaunchTrace &before, uint64_t address, unsigned size) const {
  const uint64_t line = address & ~(Shadow::kLine - 1);
  const char *const own = left_in(line), *const other = before.left_in(line);
  return own && other && !std::memcmp(own + (address - line), other + (address - line), size);
}

void LaunchTrace::compare(const LaunchTrace &before, const Shadow::View &own, const Shadow::View &other,
                          Races &races) const {
  const unsigned step = 1u << std::min(own.shift, other.shift);
  for (unsigned byte = 0; byte < Shadow::kLine; byte += step) {
    const History &own_history = history(own, byte), &other_history = before.history(other, byte);
    const uint64_t address = own.address + byte;
    const Pair pair = pair_of(own_history, other_history, left_alike(before, address, step));
    if (pair.own == kRoles)
      continue;
    const Access first = access(own_history, own, byte, pair.own),
                 second = access(other_history, other, byte, pair.other);
    wire::Sighting &race = races[{first.touch.record, second.touch.record}];
    if (race.count++)
      continue;
    race = sighting(first, address);
    before.add_other(race, second, address);
  }
}

std::vector<wire::Sighting> LaunchTrace::races_with(const LaunchTrace &before) const {
  Races races;
  for (const Page &page : pages_)
    checks_->memory().each_line(page.number, [&](const Shadow::View &line) {
      if (const auto other = before.checks_->memory().line(line.address))
        compare(before, line, *other, races);
    });
  return take(races);
}

// Bytes that a copy engine wrote, or read.
void LaunchTrace::compare(const Bytes &bytes, bool is_written, Races &races) const {
  each_line(bytes, [&](const Shadow::View &line) {
    for (unsigned byte = 0; byte < Shadow::kLine; byte += 1u << line.shift) {
      const uint64_t address = line.address + byte;
      if (!bytes.touches({address, 1u << line.shift}))
        continue;
      const History &own_history = history(line, byte);
      for (const Role role : {kLastWrite, kLastAtomic, kLastRead}) {
        if (!own_history.by[role].segment || (role != kLastWrite && !is_written))
          continue;
        const Access own = access(own_history, line, byte, role);
        wire::Sighting &race = races[{own.touch.record, is_written}];
        if (!race.count++) {
          race = sighting(own, address);
          race.has_copy = true;
          race.copy_writes = is_written;
          race.other_address = bytes.address;
          race.other_size = bytes.size;
        }
        break;
      }
    }
  });
}

std::vector<wire::Sighting> LaunchTrace::races_with(const CopiedBytes &copy) const {
  Races races;
  compare(copy.to, true, races);
  // The host may read a flag that the kernel set by an atomic store, which on most targets looks like any other store.
  if (copy.from.size > kWidestFlag)
    compare(copy.from, false, races);
  return take(races);
}

wire::Sighting LaunchTrace::sighting(Access own, uint64_t address) const {
  wire::Sighting race{};
  const Segment &its = checks_->ordering().of(own.touch);
  race.kind = static_cast<uint64_t>(wire::FindingKind::kRace);
  race.kernel = get(checks_->plan(), plan::kernel);
  race.record = own.touch.record;
  race.address = address;
  race.size = checks_->size_of(own.touch.record);
  race.lane = own.lane;
  race.wave = its.wave;
  race.group = checks_->ordering().number(its.group);
  race.launch = launch_;
  race.count = 1;
  if (const auto near = ProgramMemory::get().nearest(address); near && near->has(address))
    near->put_into(race);
  return race;
}

// Adds what this launch, which has ended before, did there.
void LaunchTrace::add_other(wire::Sighting &race, Access other, uint64_t address) const {
  const Segment &its = checks_->ordering().of(other.touch);
  race.has_other = race.has_launch = true;
  race.other_record = other.touch.record;
  race.other_address = address;
  race.other_size = checks_->size_of(other.touch.record);
  race.other_lane = other.lane;
  race.other_wave = its.wave;
  race.other_group = checks_->ordering().number(its.group);
  race.other_kernel = get(checks_->plan(), plan::kernel);
  race.other_launch = launch_;
}

} // namespace luthier
