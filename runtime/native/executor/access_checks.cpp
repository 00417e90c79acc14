#include "access_checks.h"

#include "program_memory.h"
#include "unwritten.h"

namespace luthier {

using namespace layout;

void AccessChecks::observe(const Instruction &instruction, const char *access, uint32_t event) {
  const auto &[wave, record, execution] = instruction;
  if (!silent_.empty() && instruction != last_)
    settle();
  last_ = instruction;
  GroupOrder &group = ordering_.group(wave);
  const Where where{group, group.waves[get(wave, wave::index)]};
  if (event == EVENT_ACCESS)
    this->access(where, wave, record, access);
  else
    barrier(where, wave, record, event);
}

// Memory --------------------------------------------------------------------------------------------------------------

void AccessChecks::access(Where where, const char *wave, uint32_t record, const char *access) {
  ordering_.meet(where.group, where.wave);
  const uint64_t mask = get(access, access::mask);
  const auto *addresses = reinterpret_cast<const uint64_t *>(access + access::addresses.offset);
  const uint64_t lds = get(wave, wave::lds), lds_size = get(wave, wave::lds_size);
  const uint64_t scratch = get(wave, wave::scratch);
  const uint64_t scratch_size = get(wave, wave::scratch_size) * get(plan_, plan::wave_size);
  Lanes there, in_lds;
  in_lds.in_lds = true;
  in_lds.base = lds;
  there.size = in_lds.size = get(access, access::size);
  there.record = in_lds.record = record;
  uint64_t shared = 0; // lanes that are not in their own scratch
  for (uint64_t rest = mask; rest; rest &= rest - 1) {
    const unsigned lane = __builtin_ctzll(rest);
    const uint64_t address = addresses[lane];
    if (address - scratch < scratch_size)
      continue;
    Lanes &its = address - lds < lds_size ? in_lds : there;
    its.addresses[its.count] = address;
    its.lanes[its.count++] = lane;
    shared |= uint64_t{1} << lane;
  }
  if (!shared)
    return;
  if (!where.wave.narrow.empty() && get(access, access::kind) == ACCESS_LANES)
    reappear(where, record, shared);
  remember(record, there.size);
  const unsigned use = pointer<const uint16_t *>(plan_, plan::uses)[record];
  if (there.count)
    touch(where, there, use & ((1u << USE_LDS_SHIFT) - 1));
  if (in_lds.count)
    touch(where, in_lds, use >> USE_LDS_SHIFT);
}

void AccessChecks::touch(Where where, const Lanes &lanes, unsigned use) {
  const bool reads = use & USE_READS, writes = use & USE_WRITES;
  if (wanted_.uninitialised && reads)
    look_for_unwritten(where, lanes);
  if (writes && lanes.in_lds)
    for (unsigned index = 0; index < lanes.count; ++index)
      std::memset(where.group.written.data() + (lanes.addresses[index] - lanes.base), 1, lanes.size);
  if (!wanted_.races)
    return;
  if (reads == writes || use & USE_COHERENT || (writes && is_in_doubt(where, lanes)))
    atomic(where, lanes, use);
  else if (writes)
    write(where, lanes);
  else
    read(where, lanes);
}

// Return whether a store may be an atomic one, which the instruction does not tell everywhere: of a wave that does
// atomics with results, or met one that did, and to where somebody did an atomic. So locks are released.
bool AccessChecks::is_in_doubt(Where where, const Lanes &lanes) {
  bool found = false;
  if (where.wave.returned)
    for (unsigned index = 0; index < lanes.count && !found; ++index)
      shadow(lanes).visit(lanes.addresses[index], lanes.size, [&](Cell &cell, uint64_t, uint64_t) {
        found |= cell.atomic.segment && (!lanes.in_lds || ordering_.of(cell.atomic).group == where.group.id);
      });
  return found;
}

void AccessChecks::atomic(Where where, const Lanes &lanes, unsigned use) {
  const bool writes = use & USE_WRITES;
  // A store in memory that an atomic gets the value of may be one that says that all before is done: on most targets it
  // looks like any other.
  const bool acquires = !writes || (use & USE_RETURNS && !lanes.in_lds);
  for (unsigned index = 0; index < lanes.count; ++index) {
    bool told = false;
    shadow(lanes).visit(lanes.addresses[index], lanes.size, [&](Cell &cell, uint64_t address, uint64_t) {
      const bool of_others = lanes.in_lds && ordering_.of(cell.write).group != where.group.id;
      if (!lanes.in_lds || ordering_.of(cell.atomic).group == where.group.id)
        ordering_.acquire(where.wave, cell.atomic);
      if (acquires && !of_others)
        ordering_.acquire_store(where.group, where.wave, cell.write);
      else if (writes && !told && collides(where, lanes, cell.write)) {
        race(where, lanes, index, cell.write, address);
        told = true;
      }
    });
  }
  if (use & USE_RETURNS)
    where.wave.returned = true;
  if (!writes)
    return;
  const uint32_t segment = ordering_.release(where.group, where.wave);
  for (unsigned index = 0; index < lanes.count; ++index)
    shadow(lanes).visit(lanes.addresses[index], lanes.size, [&](Cell &cell, uint64_t, uint64_t) {
      cell.atomic = {segment, lanes.record << Touch::kLaneBits | lanes.lanes[index]};
    });
}

void AccessChecks::read(Where where, const Lanes &lanes) {
  const uint32_t segment = ordering_.plain(where.group, where.wave);
  for (unsigned index = 0; index < lanes.count; ++index) {
    const Touch now{segment, lanes.record << Touch::kLaneBits | lanes.lanes[index]};
    bool told = false;
    shadow(lanes).visit(lanes.addresses[index], lanes.size, [&](Cell &cell, uint64_t address, uint64_t) {
      if (!told && collides(where, lanes, cell.write)) {
        race(where, lanes, index, cell.write, address);
        told = true;
      }
      if (cell.read.segment && cell.read.segment != segment) {
        const Segment &last = ordering_.of(cell.read);
        if (last.group != where.group.id) {
          cell.read_elsewhere = cell.read;
          cell.read_by_other = {};
        } else if (last.wave != where.wave.index) {
          cell.read_by_other = cell.read;
        }
      }
      cell.read = now;
    });
  }
}

void AccessChecks::write(Where where, const Lanes &lanes) {
  const uint32_t segment = ordering_.plain(where.group, where.wave);
  for (unsigned index = 0; index < lanes.count; ++index) {
    const Touch now{segment, lanes.record << Touch::kLaneBits | lanes.lanes[index]};
    bool told = false;
    shadow(lanes).visit(lanes.addresses[index], lanes.size, [&](Cell &cell, uint64_t address, uint64_t bytes) {
      for (const Touch &other : {cell.atomic, cell.read, cell.read_by_other, cell.read_elsewhere})
        if (!told && collides(where, lanes, other)) {
          race(where, lanes, index, other, address);
          told = true;
        }
      if (!told && collides(where, lanes, cell.write)) {
        Silent one{describe(where, lanes, index, cell.write, address), address, bytes, 0};
        std::memcpy(&one.before, reinterpret_cast<const void *>(address), bytes);
        silent_.push_back(one);
      }
      // What comes after is ordered behind these reads, too, if it is behind the write.
      cell.read = cell.read_by_other = cell.read_elsewhere = {};
      cell.write = now;
    });
  }
}

// Vectors may reach over what is used, as padding: so they are told only where no byte was written.
void AccessChecks::look_for_unwritten(Where where, const Lanes &lanes) {
  const uint8_t *written = where.group.written.data();
  for (unsigned index = 0; index < lanes.count; ++index) {
    const uint64_t address = lanes.addresses[index], offset = address - lanes.base;
    if (lanes.in_lds ? std::memchr(written + offset, 1, lanes.size) != nullptr : !is_unwritten(address, lanes.size))
      continue;
    wire::Sighting &found = note(wire::Sight::kUninitialised, lanes.record, 0);
    if (found.count++)
      continue;
    found.address = offset;
    found.in_lds = lanes.in_lds;
    found.size = lanes.size;
    found.lane = lanes.lanes[index];
    found.wave = where.wave.index;
    found.group = ordering_.number(where.group.id);
    if (const auto near = ProgramMemory::get().nearest(address); near && !lanes.in_lds) {
      found.base = near->address;
      found.extent = near->size;
      found.allocation = near->number;
    }
  }
}

// The stores of the instruction before are done now.
void AccessChecks::settle() {
  std::tuple<uint64_t, uint64_t, unsigned> told{~0ull, 0, 0};
  for (const Silent &one : silent_) {
    if (!std::memcmp(&one.before, reinterpret_cast<const void *>(one.address), one.bytes) || one.lane() == told)
      continue;
    told = one.lane();
    add(one.race);
  }
  silent_.clear();
}

void AccessChecks::race(Where where, const Lanes &lanes, unsigned index, Touch other, uint64_t address) {
  add(describe(where, lanes, index, other, address));
}

void AccessChecks::add(const wire::Sighting &race) {
  auto [at, is_new] = found_.try_emplace({wire::Sight::kRace, race.record, race.other_record}, race);
  ++at->second.count;
}

wire::Sighting AccessChecks::describe(Where where, const Lanes &lanes, unsigned index, Touch other, uint64_t address) {
  wire::Sighting found{};
  found.kind = static_cast<uint64_t>(wire::Sight::kRace);
  found.kernel = get(plan_, plan::kernel);
  found.record = lanes.record;
  const Segment &its = ordering_.of(other);
  found.address = lanes.addresses[index] - lanes.base;
  found.in_lds = lanes.in_lds;
  found.size = lanes.size;
  found.lane = lanes.lanes[index];
  found.wave = where.wave.index;
  found.group = ordering_.number(where.group.id);
  found.has_other = 1;
  found.other_record = other.record();
  found.other_address = address - lanes.base;
  found.other_size = sizes_[other.record()];
  found.other_lane = other.lane();
  found.other_wave = its.wave;
  found.other_group = ordering_.number(its.group);
  const auto near = ProgramMemory::get().nearest(address);
  if (near && !lanes.in_lds && address - near->address < near->size) {
    found.base = near->address;
    found.extent = near->size;
    found.allocation = near->number;
  }
  return found;
}

void AccessChecks::remember(uint32_t record, uint32_t size) {
  if (record >= sizes_.size())
    sizes_.resize(record + 1);
  sizes_[record] = size;
}

// Barriers ------------------------------------------------------------------------------------------------------------

void AccessChecks::barrier(Where where, const char *wave, uint32_t record, uint32_t event) {
  WaveOrder &mine = where.wave;
  const uint64_t all = get(plan_, plan::wave_size) == 32 ? 0xFFFFFFFF : ~uint64_t{0};
  const uint64_t exec = get(wave, Field{static_cast<uint32_t>(EXEC), 8}) & all;
  if (event == EVENT_GRID_SIGNAL)
    return ordering_.signal_grid(where.group, mine);
  if (event == EVENT_GRID_WAIT)
    return ordering_.wait_for_grid(mine);
  if (event == EVENT_END) {
    mine.ended = true;
    mine.end = record;
    for (const WaveOrder &other : where.group.waves)
      if (other.signals > mine.signals)
        missed(where.group, other, mine);
    return;
  }
  if (event == EVENT_BARRIER || event == EVENT_SIGNAL) {
    reappear(where, record, exec);
    if (exec != all) {
      const auto known = std::find_if(mine.narrow.begin(), mine.narrow.end(),
                                      [=](const Narrow &each) { return each.record == record; });
      if (known == mine.narrow.end())
        mine.narrow.push_back({record, exec});
      else
        known->exec &= exec;
    }
    ordering_.signal(where.group, mine, record);
    for (const WaveOrder &other : where.group.waves)
      if (other.ended && other.signals < mine.signals)
        missed(where.group, mine, other);
  }
  if (event == EVENT_BARRIER || event == EVENT_WAIT)
    ordering_.wait(mine);
}

// Lanes do something: they should have come to all barriers before.
void AccessChecks::reappear(Where where, uint32_t record, uint64_t lanes) {
  auto &narrow = where.wave.narrow;
  for (size_t index = 0; index < narrow.size();) {
    const uint64_t skipped = lanes & ~narrow[index].exec;
    if (!skipped) {
      ++index;
      continue;
    }
    if (wanted_.barriers) {
      wire::Sighting &found = note(wire::Sight::kDivergentBarrier, narrow[index].record, 0);
      if (found.count == 0) {
        found.lane = __builtin_ctzll(skipped);
        found.wave = found.other_wave = where.wave.index;
        found.group = found.other_group = ordering_.number(where.group.id);
        found.has_other = 1;
        found.other_record = record;
        found.other_lane = found.lane;
      }
      found.count += __builtin_popcountll(skipped);
    }
    narrow.erase(narrow.begin() + static_cast<ptrdiff_t>(index));
  }
}

void AccessChecks::missed(const GroupOrder &group, const WaveOrder &waits, const WaveOrder &ended) {
  if (!wanted_.barriers)
    return;
  wire::Sighting &found = note(wire::Sight::kMissedBarrier, waits.last_barrier, ended.end);
  if (found.count++)
    return;
  found.wave = waits.index;
  found.group = found.other_group = ordering_.number(group.id);
  found.has_other = 1;
  found.other_record = ended.end;
  found.other_wave = ended.index;
}

// Findings ------------------------------------------------------------------------------------------------------------

wire::Sighting &AccessChecks::note(wire::Sight kind, uint64_t record, uint64_t other) {
  wire::Sighting &found = found_[{kind, record, other}];
  found.kind = static_cast<uint64_t>(kind);
  found.kernel = get(plan_, plan::kernel);
  found.record = record;
  return found;
}

std::vector<wire::Sighting> AccessChecks::take() {
  settle();
  std::vector<wire::Sighting> all;
  for (const auto &[key, found] : found_)
    all.push_back(found);
  found_.clear();
  return all;
}

} // namespace luthier
