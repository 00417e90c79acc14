#include "access_checks.h"

#include <utility>

#include "program_memory.h"
#include "take.h"
#include "unwritten.h"

namespace luthier {

using namespace layout;

void AccessChecks::begin(const char *plan) {
  plan_ = plan;
  repeated_.clear();
  if (!wanted_.races)
    return;
  // Without an atomic, no wave can know that a store of another work-group is done.
  const auto *uses = pointer<const uint16_t *>(plan, plan::uses);
  constexpr unsigned kAtomic = USE_READS | USE_WRITES;
  const bool meets = std::any_of(uses, uses + get(plan, plan::record_count) - 1,
                                 [](uint16_t use) { return use & USE_COHERENT || (use & kAtomic) == kAtomic; });
  ordering_.begin(meets ? get(plan, plan::fences) : 0);
}

void AccessChecks::observe(const Instruction &instruction, const char *access, uint32_t event) {
  const auto &[wave, record, execution] = instruction;
  if (wanted_.races) {
    if (!silent_.empty() && instruction != last_)
      settle();
    instruction_ = &instruction;
  }
  GroupOrder &group = ordering_.group(wave);
  const Where where{group, group.waves[get(wave, wave::index)]};
  if (event == EVENT_ACCESS)
    this->access(where, wave, record, access);
  else if (event != EVENT_FENCE)
    barrier(where, wave, record, event);
  else if (wanted_.races)
    put(const_cast<char *>(wave), wave::incomplete,
        ordering_.fence(group, where.wave, pointer<const uint16_t *>(plan_, plan::uses)[record]));
  if (!wants_accesses())
    put(const_cast<char *>(wave), wave::told, uint64_t{!where.wave.narrow.empty()});
}

// Memory --------------------------------------------------------------------------------------------------------------

namespace {

// Return the number of set bits from the lowest one on.
unsigned low_ones(uint64_t bits) { return ~bits ? __builtin_ctzll(~bits) : 64; }

// Return whether a history has no access but that of a role.
bool is_only(Role role, const History &history) {
  for (unsigned other = 0; other < kRoles; ++other)
    if (other != role && history.by[other].segment)
      return false;
  return true;
}

// Return the bits of a cell's lanes that belong to accesses in its history.
uint32_t used_lanes(const History &history) {
  uint32_t used = 0;
  for (unsigned role = 0; role < kRoles; ++role)
    if (history.by[role].segment)
      used |= lane_field(role);
  return used;
}

// The LDS of a work-group, and the scratch of a wave.
struct OwnMemory {
  OwnMemory(const char *wave, const char *plan)
      : lds(get(wave, wave::lds)), lds_end(lds + get(wave, wave::lds_size)), scratch(get(wave, wave::scratch)),
        scratch_end(scratch + get(wave, wave::scratch_size) * get(plan, plan::wave_size)) {}
  bool overlaps_scratch(uint64_t address, uint64_t size) const {
    return address < scratch_end && address + size > scratch;
  }
  bool overlaps_lds(uint64_t address, uint64_t size) const { return address < lds_end && address + size > lds; }
  bool overlaps(uint64_t address, uint64_t size) const {
    return overlaps_scratch(address, size) || overlaps_lds(address, size);
  }
  const uint64_t lds, lds_end, scratch, scratch_end;
};

} // namespace

// Sort the lanes of an access by the memory that they access. Leave out accesses of their own scratch.
void AccessChecks::sort(const char *wave, const char *access, bool merges, Lanes &in_memory, Lanes &in_lds) const {
  const auto *addresses = reinterpret_cast<const uint64_t *>(access + access::addresses.offset);
  const uint64_t mask = get(access, access::mask), size = in_memory.size, kind = get(access, access::kind);
  const uint64_t behind = mask & mask << 1; // lanes behind an active one
  const uint64_t follows = kind == ACCESS_LANES ? behind & get(access, access::follows) : behind;
  const uint64_t repeats = kind == ACCESS_LANES ? behind & get(access, access::repeats) : 0;
  const OwnMemory of_wave(wave, plan_);
  for (uint64_t rest = mask; rest;) {
    Run run{0, static_cast<unsigned>(__builtin_ctzll(rest)), 1, false, 0};
    if (run.lane < 63) {
      run.repeats = repeats >> run.lane & 2;
      run.count += low_ones((run.repeats ? repeats : follows) >> (run.lane + 1));
    }
    run.address = kind == ACCESS_ROW ? addresses[0] + run.lane * size : addresses[run.lane];
    rest = run.lane + run.count >= 64 ? 0 : rest & ~uint64_t{0} << (run.lane + run.count);
    const uint64_t bytes = size * (run.repeats ? 1 : run.count), end = run.address + bytes;
    const bool begins_in_lds = run.address >= of_wave.lds && run.address < of_wave.lds_end;
    if (!of_wave.overlaps_scratch(run.address, bytes) &&
        (begins_in_lds ? end <= of_wave.lds_end : !of_wave.overlaps_lds(run.address, bytes))) {
      Lanes &its = begins_in_lds ? in_lds : in_memory;
      its.add(run, merges);
      continue;
    }
    for (unsigned index = 0; index < run.count; ++index) {
      const uint64_t address = run.address + (run.repeats ? 0 : index * size);
      if (of_wave.overlaps_scratch(address, 1))
        continue;
      Lanes &its = of_wave.overlaps_lds(address, 1) ? in_lds : in_memory;
      its.add({address, run.lane + index, 1, false, 0}, false);
    }
  }
}

void AccessChecks::access(const Where &where, const char *wave, uint32_t record, const char *access) {
  ordering_.meet(where.group, where.wave);
  if (reads_again(where, wave, record, access))
    return;
  Lanes in_memory, in_lds;
  in_lds.in_lds = true;
  in_lds.base = get(wave, wave::lds);
  in_memory.size = in_lds.size = get(access, access::size);
  in_memory.record = in_lds.record = record;
  in_memory.scalar = get(access, access::kind) == ACCESS_SCALAR;
  const unsigned use = pointer<const uint16_t *>(plan_, plan::uses)[record];
  const bool writes = (use | use >> USE_LDS_SHIFT) & USE_WRITES;
  sort(wave, access, !writes && !wanted_.uninitialised, in_memory, in_lds);
  if (!in_memory.count && !in_lds.count)
    return;
  if (!where.wave.narrow.empty() && get(access, access::kind) != ACCESS_SCALAR) {
    uint64_t shared = 0; // lanes that are not in their own scratch
    for (const Lanes *lanes : {&in_memory, &in_lds})
      for (unsigned index = 0; index < lanes->count; ++index)
        for (uint64_t rest = lanes->runs[index].starts(); rest; rest &= rest - 1)
          shared |= ~uint64_t{0} >> (64 - lanes->runs[index].count) << __builtin_ctzll(rest);
    reappear(where, record, shared);
  }
  if (!wants_accesses())
    return;
  if (wanted_.races)
    remember(record, in_memory.size);
  if (in_memory.count)
    touch(where, in_memory, use & ((1u << USE_LDS_SHIFT) - 1));
  if (in_lds.count)
    touch(where, in_lds, use_in_lds(record));
}

// Waves read the same arguments. A scalar load that does what it did when it was executed last only adds a read to a
// history that is its own. Return false for all other accesses.
bool AccessChecks::reads_again(const Where &where, const char *wave, uint32_t record, const char *access) {
  if (record >= repeated_.size())
    return false;
  const RepeatedRead &last = repeated_[record];
  uint64_t address;
  std::memcpy(&address, access + access::addresses.offset, sizeof address);
  if (!last.history || last.address != address || last.size != get(access, access::size) ||
      get(access, access::kind) != ACCESS_SCALAR || histories_.moves(last.history) != last.moves ||
      OwnMemory(wave, plan_).overlaps(address, last.size))
    return false;
  add_read(where, {ordering_.plain(where.group, where.wave), record}, histories_.of_all_cells(last.history));
  return true;
}

// A scalar load has read memory as a plain access: note what it has read if that is the same as the last time.
void AccessChecks::note_repeated(const Lanes &lanes) {
  if (lanes.record >= repeated_.size())
    repeated_.resize(lanes.record + 1);
  RepeatedRead &last = repeated_[lanes.record];
  const Run &run = lanes.runs[0];
  if (last.address != run.address || last.size != lanes.size) {
    last = {run.address, lanes.size};
    return;
  }
  uint32_t number = 0, cells = 0;
  bool alike = true;
  each_span(lanes, [&](const Run &, const Shadow::Span &span) {
    number = cells ? number : span.histories[0];
    cells += span.count;
    const uint32_t used = used_lanes(histories_[number]);
    for (unsigned cell = 0; cell < span.count; ++cell) {
      alike &= span.histories[cell] == number;
      if (alike)
        span.lanes[cell] &= used;
      alike &= !span.lanes[cell]; // all accesses are by lane 0, so lanes will stay as they are
    }
  });
  const History &history = histories_[number];
  const bool is_own = alike && histories_.cells(number) == cells;
  const bool is_only_read = !history.by[kLastWrite].segment && !history.by[kLastAtomic].segment;
  last.history = is_own && is_only_read ? number : 0;
  last.moves = histories_.moves(number);
}

void AccessChecks::touch(const Where &where, const Lanes &lanes, unsigned use) {
  const bool reads = use & USE_READS, writes = use & USE_WRITES;
  if (wanted_.uninitialised) {
    if (reads)
      look_for_unwritten(where, lanes);
    if (writes && lanes.in_lds)
      for (const Run *run = lanes.runs; run != lanes.runs + lanes.count; ++run)
        std::memset(where.group.written.data() + (run->address - lanes.base), 1,
                    size_t{lanes.size} * (run->repeats ? 1 : run->count));
  }
  if (!wanted_.races)
    return;
  histories_.collect();
  ++stamp_;
  reported_lane_ = -1;
  if (reads == writes || use & USE_COHERENT || (writes && is_in_doubt(where, lanes)))
    return atomic(where, lanes, use);
  const Touch now{ordering_.plain(where.group, where.wave), lanes.record};
  if (writes && !lanes.in_lds && !lanes.scalar && ordering_.store(where.group, where.wave))
    report_waits();
  if (writes)
    change(where, lanes, kLastWrite, [&](Change &made) { write(where, lanes, now, made); });
  else
    change(where, lanes, kLastRead, [&](Change &made) { read(where, lanes, now, made); });
  if (lanes.scalar && !lanes.in_lds && !writes && !wanted_.uninitialised)
    note_repeated(lanes);
}

// Call `each(run, span)` for all cells of all lanes, and where they are a whole line, `each_whole(run, line, address)`.
template <typename Each, typename EachWhole>
void AccessChecks::each_span(const Lanes &lanes, bool writes, Each each, EachWhole each_whole) {
  Shadow &shadow = this->shadow(lanes);
  for (const Run *run = lanes.runs; run != lanes.runs + lanes.count; ++run)
    shadow.visit(
        run->address, uint64_t{lanes.size} * (run->repeats ? 1 : run->count), (run->address | lanes.size) % 4, writes,
        [&](const Shadow::Span &span) { each(*run, span); },
        [&](Shadow::Whole &line, uint64_t address) { return each_whole(*run, line, address); });
}

template <typename Each> void AccessChecks::each_span(const Lanes &lanes, Each each) {
  each_span(lanes, false, each, [](const Run &, const Shadow::Whole &, uint64_t) { return false; });
}

// Replace the history of each cell by what `make(change)` sets, and set the lanes in that role where it changes: of
// equal accesses to single cells the first lane stays.
template <typename Make> void AccessChecks::change(const Where &where, const Lanes &lanes, Role role, Make make) {
  const auto change_of = [&](uint32_t from) -> const Change & {
    Change &made = changes_[from % changes_.size()];
    if (made.stamp != stamp_ || made.from != from) {
      made.begin(stamp_, from);
      make(made);
    }
    return made;
  };
  const auto change_cells = [&](const Run &run, const Shadow::Span &span) {
    for (unsigned begin = 0; begin < span.count;) {
      const uint32_t from = span.histories[begin];
      const Change &made = change_of(from);
      const Cells cells{span, begin, begin + equal_ones(span.histories + begin, span.count - begin)};
      if (made.races || made.stored)
        tell(where, lanes, run, cells, made);
      if (made.to != from) {
        std::fill(span.histories + begin, span.histories + cells.end, made.to);
        histories_.move(from, made.to, cells.end - begin);
        put_lanes(lanes, run, cells, role, made.moved);
      }
      begin = cells.end;
    }
  };
  const auto change_line = [&](const Run &run, Shadow::Whole &line, uint64_t address) {
    const uint64_t before = address - run.address;
    const auto shift = static_cast<uint8_t>(__builtin_ctz(lanes.size / 4 | 1u << 31));
    if (run.repeats || lanes.size != uint64_t{4} << shift || before % lanes.size)
      return false;
    const Change &made = change_of(line.history);
    if (made.races || made.stored || (shift != line.shift && !is_only(role, histories_[made.to])))
      return false;
    if (made.moved != kRoles)
      line.lanes = (line.lanes & ~lane_field(made.moved)) | lane_of(line.lanes, kLastRead) << made.moved * kLaneBits;
    line.lanes = (line.lanes & ~lane_field(role)) | (run.lane + before / lanes.size) << role * kLaneBits;
    line.shift = shift;
    if (made.to != line.history)
      histories_.move(line.history, made.to, Shadow::kDwords);
    line.history = made.to;
    return true;
  };
  each_span(lanes, role != kLastRead, change_cells, change_line);
}

void AccessChecks::put_lanes(const Lanes &lanes, const Run &run, Cells cells, Role role, Role moved) {
  const Shadow::Span &span = cells.span;
  const unsigned first = run.repeats ? run.lane + run.count - 1 : run.lane;
  const unsigned before = ((span.address - run.address) >> span.shift) + cells.begin, each = lanes.size >> span.shift;
  uint32_t *const at = span.lanes + cells.begin;
  const unsigned count = cells.end - cells.begin;
  if (moved != kRoles)
    for (unsigned index = 0; index < count; ++index)
      at[index] = (at[index] & ~lane_field(moved)) | lane_of(at[index], kLastRead) << moved * kLaneBits;
  const uint32_t kept = ~lane_field(role);
  const unsigned shift = role * kLaneBits;
  if (each == 1) { // the usual case
    for (unsigned index = 0; index < count; ++index)
      at[index] = (at[index] & kept) | (first + before + index) << shift;
    return;
  }
  unsigned lane = first + before / each, part = before % each;
  for (unsigned index = 0; index < count; ++index) {
    at[index] = (at[index] & kept) | lane << shift;
    if (++part == each) {
      part = 0;
      ++lane;
    }
  }
}

// Return an access, or nothing, if it is of a work-group that used the LDS before.
Touch AccessChecks::own(const Where &where, const Lanes &lanes, Touch touch) const {
  return touch.segment && is_of_others(where, lanes, touch) ? Touch{} : touch;
}

// Return the kind of finding for a read beside an atomic: atomic loads of LDS are plain instructions.
wire::FindingKind AccessChecks::kind_of_read(uint32_t record) const {
  return use_in_lds(record) & USE_PLAIN ? wire::FindingKind::kRace : wire::FindingKind::kUnorderedRead;
}

void AccessChecks::read(const Where &where, const Lanes &lanes, Touch now, Change &made) {
  History &after = histories_.draft();
  const History &before = histories_[made.from];
  // In memory, a plain read beside an atomic is not a race: programs are correct with either value.
  for (const Role other : {kLastWrite, kLastAtomic})
    if (!made.races && (other == kLastWrite || (lanes.in_lds && !is_guard(now.record))) &&
        collides(where, lanes, before.by[other])) {
      made.races = true;
      made.other = other;
      if (other == kLastAtomic)
        made.kind = kind_of_read(now.record);
    }
  if (!made.races && lacks_fence(where, lanes, before, true, made)) {
    made.races = true;
    made.other = kLastWrite;
  }
  for (unsigned role = 0; role < kRoles; ++role)
    after.by[role] = own(where, lanes, before.by[role]);
  made.moved = add_read(where, now, after);
  after.readers = before.readers;
  made.to = histories_.find();
}

// Add a read to a history; return the role that the previous read gets, `kRoles` for none.
Role AccessChecks::add_read(const Where &where, Touch now, History &history) const {
  const Touch last = std::exchange(history.by[kLastRead], now);
  if (!last.segment || last.segment == now.segment)
    return kRoles;
  const Segment &then = ordering_.of(last);
  if (then.group != where.group.id) {
    history.by[kReadElsewhere] = last;
    history.by[kReadByOther] = {};
    return kReadElsewhere;
  }
  if (then.wave == where.wave.index)
    return kRoles;
  history.by[kReadByOther] = last;
  return kReadByOther;
}

void AccessChecks::write(const Where &where, const Lanes &lanes, Touch now, Change &made) {
  History &after = histories_.draft();
  const History &before = histories_[made.from];
  for (const Role other : {kLastAtomic, kLastRead, kReadByOther, kReadElsewhere})
    if (!made.races && collides(where, lanes, before.by[other])) {
      made.races = true;
      made.other = other;
    }
  made.stored = collides(where, lanes, before.by[kLastWrite]) || lacks_fence(where, lanes, before, false, made);
  // What comes after is ordered behind these reads, too, if it is behind the write.
  for (const Role role : {kLastRead, kReadByOther, kReadElsewhere})
    after.by[role] = {};
  after.by[kLastAtomic] = own(where, lanes, before.by[kLastAtomic]);
  after.by[kLastWrite] = now;
  after.readers = lanes.in_lds ? 0 : readers(before, where.group.id);
  made.to = histories_.find();
}

// Return whether an access misses the last write, or is overtaken by it, for want of a fence; set the kind.
bool AccessChecks::lacks_fence(const Where &where, const Lanes &lanes, const History &before, bool reads,
                               Change &made) const {
  if (lanes.in_lds)
    return false;
  const Lack lack = ordering_.lack(before.by[kLastWrite], where.group, where.wave, reads, before.readers);
  if (lack != Lack::kNothing && !made.races)
    made.kind = lack == Lack::kRelease ? wire::FindingKind::kMissingRelease : wire::FindingKind::kMissingAcquire;
  return lack != Lack::kNothing;
}

// Return the work-group, besides the writer's, that may have what is overwritten in its caches; 0: none.
uint32_t AccessChecks::readers(const History &before, uint32_t writer) const {
  uint32_t all = before.readers == writer ? 0 : before.readers;
  for (const Role role : {kLastRead, kReadByOther, kReadElsewhere})
    if (const uint32_t id = ordering_.of(before.by[role]).group; id && id != writer)
      all = all && all != id ? kSeveral : id;
  return all;
}

// Report the races of an access with earlier accesses of these cells, once for each lane.
void AccessChecks::tell(const Where &where, const Lanes &lanes, const Run &run, Cells cells, const Change &made) {
  const Shadow::Span &span = cells.span;
  const History before = histories_[made.from];
  const unsigned times = run.repeats ? run.count : 1, count = cells.end - cells.begin;
  for (uint64_t rest = run.starts(); rest; rest &= rest - 1)
    for (unsigned place = 0; place < times * count; ++place) {
      const unsigned cell = cells.begin + place % count;
      const uint64_t address = span.address + (uint64_t{cell} << span.shift);
      const unsigned index = run.repeats ? place / count : (address - run.address) / lanes.size;
      const unsigned lane = __builtin_ctzll(rest) + index;
      if (static_cast<int>(lane) == reported_lane_)
        continue;
      const uint64_t lane_address = run.repeats ? run.address : run.address + uint64_t{index} * lanes.size;
      const Role other = made.races ? made.other : kLastWrite;
      const auto race = describe(
          where, lanes, {made.kind, lane_address, address, lane, lane_of(span.lanes[cell], other), before.by[other]});
      if (made.races) {
        reported_lane_ = static_cast<int>(lane);
        add(race);
        continue;
      }
      Silent silent{race, address, span.step(), 0};
      std::memcpy(&silent.before, reinterpret_cast<const void *>(address), span.step());
      silent_.push_back(silent);
      last_ = *instruction_;
    }
}

// Return whether a store may be atomic, which the instruction does not show on all targets. It may be if there was an
// atomic at the address, and the wave does atomics with results or met one that did (locks are released like that), or
// if there was an atomic load at the address.
bool AccessChecks::is_in_doubt(const Where &where, const Lanes &lanes) {
  if (!where.wave.returned && (lanes.in_lds || loaded_.empty()))
    return false;
  bool in_doubt = false;
  each_span(lanes, [&](const Run &, const Shadow::Span &span) {
    for (unsigned cell = 0; cell < span.count && !in_doubt; ++cell) {
      const Touch last = histories_[span.histories[cell]].by[kLastAtomic];
      in_doubt = last.segment && !is_of_others(where, lanes, last) &&
                 (where.wave.returned || loaded_.count((span.address + (uint64_t{cell} << span.shift)) / 4));
    }
  });
  return in_doubt;
}

void AccessChecks::atomic(const Where &where, const Lanes &lanes, unsigned use) {
  meet_atomics(where, lanes, use);
  if (!where.group.incomplete.empty())
    report_waits();
  if (use & USE_RETURNS)
    where.wave.returned = true;
  if (!lanes.in_lds && (use & USE_RETURNS || !(use & USE_WRITES)))
    hear(lanes, !(use & USE_WRITES));
  if (!(use & USE_WRITES))
    return;
  const Touch now{ordering_.release(where.group, where.wave), lanes.record};
  change(where, lanes, kLastAtomic, [&](Change &made) {
    History &after = histories_.draft();
    const History &before = histories_[made.from];
    for (unsigned role = 0; role < kRoles; ++role)
      after.by[role] = own(where, lanes, before.by[role]);
    after.by[kLastAtomic] = now;
    after.readers = before.readers;
    made.to = histories_.find();
  });
}

void AccessChecks::hear(const Lanes &lanes, bool loads) {
  for (const Run *run = lanes.runs; run != lanes.runs + lanes.count; ++run) {
    const uint64_t end = run->address + uint64_t{lanes.size} * (run->repeats ? 1 : run->count);
    for (uint64_t dword = run->address / 4; dword * 4 < end; ++dword) {
      heard_.insert(dword);
      if (loads)
        loaded_.insert(dword);
    }
  }
}

// Take over what others have released at the same addresses, and report the races with the rest.
void AccessChecks::meet_atomics(const Where &where, const Lanes &lanes, unsigned use) {
  uint32_t last = ~uint32_t{0};
  each_span(lanes, [&](const Run &run, const Shadow::Span &span) {
    for (unsigned begin = 0; begin < span.count;) {
      const uint32_t history = span.histories[begin];
      const Cells cells{span, begin, begin + equal_ones(span.histories + begin, span.count - begin)};
      begin = cells.end;
      if (history == last)
        continue;
      Change made;
      made.from = history;
      const History before = histories_[history];
      made.other = meet(where, lanes, before, use);
      made.races = made.other != kRoles;
      if (made.races && lanes.in_lds && made.other != kLastWrite)
        made.kind = kind_of_read(before.by[made.other].record);
      if (made.races)
        tell(where, lanes, run, cells, made);
      else
        last = history;
    }
  });
}

// Return whether an atomic, or the one before it, is not atomic for the work-group of the other.
bool AccessChecks::is_too_narrow(const Where &where, const Lanes &lanes, Touch last) const {
  const auto *uses = pointer<const uint16_t *>(plan_, plan::uses);
  return (uses[lanes.record] | uses[last.record]) & USE_NARROW && ordering_.of(last).group != where.group.id &&
         collides(where, lanes, last) && !ordering_.may_be_before(last, where.wave);
}

// Return the access in a history that the atomic races with, `kRoles` for none.
Role AccessChecks::meet(const Where &where, const Lanes &lanes, const History &before, unsigned use) {
  const bool writes = use & USE_WRITES;
  // A store whose value an atomic returns may signal that all before it is done: on most targets it looks like any
  // other store.
  const bool acquires = !writes || (use & USE_RETURNS && !lanes.in_lds);
  if (!lanes.in_lds && is_too_narrow(where, lanes, before.by[kLastAtomic]))
    return kLastAtomic;
  // A later atomic of another wave does not mean that the store came before this one, too.
  const Touch store = before.by[kLastWrite];
  const bool races =
      collides(where, lanes, store) && (!acquires || (!lanes.in_lds && is_too_narrow(where, lanes, store)));
  const bool locks = use & USE_LOCKS;
  if (!is_of_others(where, lanes, before.by[kLastAtomic]))
    ordering_.acquire(where.wave, before.by[kLastAtomic], locks);
  if (races)
    return kLastWrite;
  if (acquires && !is_of_others(where, lanes, store))
    ordering_.acquire_store(where.group, where.wave, store, locks);
  if (writes && lanes.in_lds)
    for (const Role read : {kLastRead, kReadByOther})
      if (collides(where, lanes, before.by[read]) && !is_guard(before.by[read].record))
        return read;
  return kRoles;
}

// Vectors may include unused padding, so they are reported only if no byte was written.
void AccessChecks::look_for_unwritten(const Where &where, const Lanes &lanes) {
  const uint8_t *written = where.group.written.data();
  for (const Run *run = lanes.runs; run != lanes.runs + lanes.count; ++run) {
    const unsigned places = run->repeats ? 1 : run->count;
    if (lanes.in_lds ? !std::memchr(written + (run->address - lanes.base), 0, size_t{places} * lanes.size)
                     : (run->address | lanes.size) % 4 == 0 && !some_unwritten(run->address, lanes.size, places))
      continue;
    for (unsigned index = 0; index < run->count; ++index) {
      const uint64_t address = run->address + uint64_t{lanes.size} * (run->repeats ? 0 : index);
      if (is_unwritten(where, lanes, address))
        note_unwritten(where, lanes, address, run->lane + index);
    }
  }
}

bool AccessChecks::is_unwritten(const Where &where, const Lanes &lanes, uint64_t address) {
  return lanes.in_lds ? !std::memchr(where.group.written.data() + (address - lanes.base), 1, lanes.size)
                      : luthier::is_unwritten(address, lanes.size);
}

void AccessChecks::note_unwritten(const Where &where, const Lanes &lanes, uint64_t address, unsigned lane) {
  std::lock_guard lock(mutex_);
  wire::Sighting &sighting = note(wire::FindingKind::kUninitialised, lanes.record, 0);
  if (sighting.count++)
    return;
  sighting.address = address - lanes.base;
  sighting.in_lds = lanes.in_lds;
  sighting.size = lanes.size;
  sighting.lane = lane;
  sighting.wave = where.wave.index;
  sighting.group = where.group.number;
  if (const auto near = ProgramMemory::get().nearest(address); near && !lanes.in_lds)
    near->put_into(sighting);
}

// The stores of the instruction before are done now.
void AccessChecks::settle() {
  std::tuple<uint64_t, uint64_t, unsigned> reported{~0ull, 0, 0};
  for (const Silent &silent : silent_) {
    if (!std::memcmp(&silent.before, reinterpret_cast<const void *>(silent.address), silent.bytes) ||
        silent.lane() == reported)
      continue;
    reported = silent.lane();
    add(silent.race);
  }
  silent_.clear();
}

void AccessChecks::add(const wire::Sighting &race) {
  const auto kind = static_cast<wire::FindingKind>(race.kind);
  auto [at, is_new] = found_.try_emplace({kind, race.record, race.other_record}, race);
  ++at->second.count;
}

wire::Sighting AccessChecks::describe(const Where &where, const Lanes &lanes, const Pair &pair) {
  wire::Sighting sighting{};
  sighting.kind = static_cast<uint64_t>(pair.kind);
  sighting.kernel = get(plan_, plan::kernel);
  sighting.record = lanes.record;
  const Segment &its = ordering_.of(pair.other);
  sighting.address = pair.lane_address - lanes.base;
  sighting.in_lds = lanes.in_lds;
  sighting.size = lanes.size;
  sighting.lane = pair.lane;
  sighting.wave = where.wave.index;
  sighting.group = where.group.number;
  sighting.has_other = 1;
  sighting.other_record = pair.other.record;
  sighting.other_address = pair.address - lanes.base;
  sighting.other_size = sizes_[pair.other.record];
  sighting.other_lane = pair.other_lane;
  sighting.other_wave = its.wave;
  sighting.other_group = ordering_.number(its.group);
  const auto near = ProgramMemory::get().nearest(pair.address);
  if (near && !lanes.in_lds && near->has(pair.address))
    near->put_into(sighting);
  return sighting;
}

void AccessChecks::remember(uint32_t record, uint32_t size) {
  if (record >= sizes_.size())
    sizes_.resize(record + 1);
  sizes_[record] = size;
}

// Barriers ------------------------------------------------------------------------------------------------------------

namespace {

// Return the lanes that a wave began with.
uint64_t lanes_at_begin(const char *wave) {
  const auto *launch = pointer<const char *>(pointer<const char *>(wave, wave::context), context::launch);
  const auto *image = pointer<const char *>(launch, launch::lane_images) +
                      get(wave, wave::index) * get(launch, launch::lane_image_stride);
  uint64_t lanes;
  std::memcpy(&lanes, image, sizeof lanes);
  return lanes;
}

} // namespace

void AccessChecks::barrier(const Where &where, const char *wave, uint32_t record, uint32_t event) {
  WaveOrder &own = where.wave;
  const uint64_t all = get(plan_, plan::wave_size) == 32 ? 0xFFFFFFFF : ~uint64_t{0};
  const uint64_t exec = get(wave, Field{static_cast<uint32_t>(EXEC), 8}) & all;
  if (event == EVENT_GRID_SIGNAL || event == EVENT_GRID_WAIT) {
    if (wanted_.races)
      event == EVENT_GRID_SIGNAL ? ordering_.signal_grid(where.group, own) : ordering_.wait_for_grid(own);
    return;
  }
  if (event == EVENT_END) {
    own.ended = true;
    own.end = record;
    for (const WaveOrder &other : where.group.waves)
      if (other.signals > own.signals)
        missed(where.group, other, own);
    for (const Narrow &each : own.narrow)
      if (const uint64_t away = lanes_at_begin(wave) & ~each.exec)
        missed(where.group, own, each, away);
    return;
  }
  report_waits(); // for stores of other waves, too
  if (event == EVENT_BARRIER || event == EVENT_SIGNAL) {
    reappear(where, record, exec);
    if (exec != all) {
      const auto known =
          std::find_if(own.narrow.begin(), own.narrow.end(), [=](const Narrow &each) { return each.record == record; });
      if (known == own.narrow.end())
        own.narrow.push_back({record, exec});
      else
        known->exec &= exec;
    }
    ordering_.signal(where.group, own, record);
    for (const WaveOrder &other : where.group.waves)
      if (other.ended && other.signals < own.signals)
        missed(where.group, own, other);
  }
  if (event == EVENT_BARRIER || event == EVENT_WAIT)
    ordering_.wait(own);
}

// Lanes are active: they must have reached all earlier barriers.
void AccessChecks::reappear(const Where &where, uint32_t record, uint64_t lanes) {
  auto &narrow = where.wave.narrow;
  for (size_t index = 0; index < narrow.size();) {
    const uint64_t skipped = lanes & ~narrow[index].exec;
    if (!skipped) {
      ++index;
      continue;
    }
    if (wanted_.barriers) {
      std::lock_guard lock(mutex_);
      wire::Sighting &sighting = note(wire::FindingKind::kDivergentBarrier, narrow[index].record, 0);
      if (sighting.count == 0) {
        sighting.lane = __builtin_ctzll(skipped);
        sighting.wave = sighting.other_wave = where.wave.index;
        sighting.group = sighting.other_group = where.group.number;
        sighting.has_other = 1;
        sighting.other_record = record;
        sighting.other_lane = sighting.lane;
      }
      sighting.count += __builtin_popcountll(skipped);
    }
    narrow.erase(narrow.begin() + static_cast<ptrdiff_t>(index));
  }
}

void AccessChecks::missed(const GroupOrder &group, const WaveOrder &waits, const WaveOrder &ended) {
  if (!wanted_.barriers)
    return;
  std::lock_guard lock(mutex_);
  wire::Sighting &sighting = note(wire::FindingKind::kMissedBarrier, waits.last_barrier, ended.end);
  if (sighting.count++)
    return;
  sighting.wave = waits.index;
  sighting.group = sighting.other_group = group.number;
  sighting.has_other = 1;
  sighting.other_record = ended.end;
  sighting.other_wave = ended.index;
}

// Report lanes that skipped a barrier which their wave's other lanes reached: they ended, or did nothing since.
void AccessChecks::missed(const GroupOrder &group, const WaveOrder &wave, const Narrow &barrier, uint64_t lanes) {
  if (!wanted_.barriers)
    return;
  std::lock_guard lock(mutex_);
  wire::Sighting &sighting = note(wire::FindingKind::kMissedBarrier, barrier.record, wave.end);
  if (sighting.count++)
    return;
  sighting.wave = sighting.other_wave = wave.index;
  sighting.group = sighting.other_group = group.number;
  sighting.has_other = 1;
  sighting.other_record = wave.end;
  sighting.other_lane = __builtin_ctzll(lanes);
}

// Findings ------------------------------------------------------------------------------------------------------------

wire::Sighting &AccessChecks::note(wire::FindingKind kind, uint64_t record, uint64_t other) {
  wire::Sighting &sighting = found_[{kind, record, other}];
  sighting.kind = static_cast<uint64_t>(kind);
  sighting.kernel = get(plan_, plan::kernel);
  sighting.record = record;
  return sighting;
}

std::vector<wire::Sighting> AccessChecks::take() {
  settle();
  return luthier::take(found_);
}

} // namespace luthier
