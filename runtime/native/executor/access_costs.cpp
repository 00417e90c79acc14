#include "access_costs.h"

#include <algorithm>

#include "bytes.h"

namespace luthier {

using namespace layout;

namespace {

constexpr uint64_t kWays = 16, kNone = ~uint64_t{0}, kBank = 4;

} // namespace

CacheLines::CacheLines(uint64_t lines)
    : ways_(std::clamp<uint64_t>(lines, 1, kWays)), sets_(std::max<uint64_t>(lines / ways_, 1)),
      memory_(ways_ * sets_ * sizeof(Line)), lines_(reinterpret_cast<Line *>(memory_.data())) {}

CacheLines::Touch CacheLines::touch(uint64_t line, unsigned user) {
  Line *first = &lines_[line % sets_ * ways_], *last = first + ways_;
  Line *its = std::find_if(first, last, [line](const Line &held) { return held.next == line + 1; });
  const bool hit = its != last;
  const uint64_t own = uint64_t{1} << user % 64, users = hit ? its->users : 0;
  std::copy_backward(first, hit ? its : last - 1, hit ? its + 1 : last);
  *first = {line + 1, users | own};
  return !hit ? kMiss : users & own ? kHit : kHitOfOthers;
}

void CacheLines::clear() { std::fill_n(lines_, ways_ * sets_, Line{}); }

AccessCosts::AccessCosts(const char *plan, const char *model)
    : plan_(plan), line_(get(model, cost_model::line)), store_line_(get(model, cost_model::store_line)),
      scalar_line_(get(model, cost_model::scalar_line)), l2_line_(get(model, cost_model::l2_line)),
      banks_(get(model, cost_model::lds_banks)), store_banks_(get(model, cost_model::lds_store_banks)),
      mixed_(get(model, cost_model::lds_mixed)), vector_(get(model, cost_model::vector_lines)),
      scalar_(get(model, cost_model::scalar_lines)), l2_(get(model, cost_model::l2_lines)),
      written_(get(model, cost_model::l2_lines)) {}

void AccessCosts::observe(const Instruction &instruction, const char *access, uint32_t event) {
  if (event != EVENT_ACCESS)
    return;
  const char *wave = instruction.wave;
  if (const uint64_t number = get(pointer<const char *>(wave, wave::group), group::number); number != group_) {
    group_ = number; // another compute unit's
    vector_.clear();
  }
  Row &row = row_of(instruction.record);
  const unsigned use = pointer<const uint16_t *>(plan_, plan::uses)[instruction.record];
  const auto *addresses = reinterpret_cast<const uint64_t *>(access + access::addresses.offset);
  const uint64_t lds = get(wave, wave::lds), lds_size = get(wave, wave::lds_size);
  const uint64_t kind = get(access, access::kind), size = get(access, access::size), mask = get(access, access::mask);
  const bool stores = use & USE_WRITES, scalar = kind == ACCESS_SCALAR;
  const uint64_t line = scalar ? scalar_line_ : stores ? store_line_ : line_;
  const uint64_t scratch = get(wave, wave::scratch), lanes = get(plan_, plan::wave_size);
  const uint64_t scratch_size = get(wave, wave::scratch_size) * lanes;
  uint64_t in_lds = 0, outside = 0, least = kNone, most = 0;
  bool in_scratch = false;
  touched_.clear();
  ++row.accesses;
  row.lanes += __builtin_popcountll(mask);
  for (uint64_t rest = mask; rest; rest &= rest - 1) {
    const unsigned lane = __builtin_ctzll(rest);
    const uint64_t address = kind == ACCESS_ROW ? addresses[0] + lane * size : addresses[lane];
    addresses_[lane] = address;
    if (address - lds < lds_size) {
      addresses_[lane] = address - lds;
      in_lds |= uint64_t{1} << lane;
    } else if (address - scratch < scratch_size) {
      in_scratch = true;
    } else {
      outside |= uint64_t{1} << lane;
      add(touched_, address, size, line);
      least = std::min(least, address);
      most = std::max(most, address + size);
    }
  }
  if (in_lds)
    row.lds += lds_cycles(in_lds, size, use >> USE_LDS_SHIFT & USE_WRITES);
  if (in_scratch)
    row.scratch += lanes * round_up(size, kBank); // dwords of the lanes follow each other
  row.quads += scalar ? 0 : quads(outside, size) + (in_scratch ? lanes / 4 : 0);
  if (!touched_.empty()) {
    const bool first = row.first == row.end;
    row.first = first ? least : std::min(row.first, least);
    row.end = std::max(row.end, most);
    through_caches(row, scalar ? scalar_ : vector_, use, line, get(wave, wave::index));
  }
}

AccessCosts::Row &AccessCosts::row_of(uint64_t record) {
  if (places_.size() <= record)
    places_.resize(record + 1);
  uint32_t &place = places_[record];
  if (!place) {
    rows_.push_back({.record = record});
    place = static_cast<uint32_t>(rows_.size());
  }
  return rows_[place - 1];
}

void AccessCosts::add(std::vector<uint64_t> &lines, uint64_t address, uint64_t size, uint64_t line) const {
  for (uint64_t number = address / line; number <= (address + size - 1) / line; ++number)
    if (lines.empty() || (lines.back() != number && std::ranges::find(lines, number) == lines.end()))
      lines.push_back(number);
}

// Stores and atomics go to L2 past the vector cache; L2 writes each line that has changed back once.
void AccessCosts::through_caches(Row &row, CacheLines &cache, unsigned use, uint64_t line, unsigned wave) {
  const bool stores = use & USE_WRITES, loads = use & USE_READS || !stores;
  row.lines += touched_.size();
  for (const uint64_t number : touched_) {
    const CacheLines::Touch touch = stores ? CacheLines::kMiss : cache.touch(number, wave);
    row.shared += touch == CacheLines::kHitOfOthers;
    if (touch != CacheLines::kMiss)
      continue;
    ++row.l2;
    const uint64_t first = number * line / l2_line_, last = (number * line + line - 1) / l2_line_;
    for (uint64_t next = first; next <= last; ++next) {
      row.memory += l2_.touch(next) == CacheLines::kMiss && loads;
      row.memory += stores && written_.touch(next) == CacheLines::kMiss;
    }
  }
}

uint64_t AccessCosts::quads(uint64_t lanes, uint64_t size) const {
  uint64_t count = 0;
  for (unsigned first = 0; first < 64; first += 4) {
    uint64_t least = kNone, most = 0, active = 0;
    for (unsigned lane = first; lane < first + 4; ++lane)
      if (lanes >> lane & 1) {
        least = std::min(least, addresses_[lane]);
        most = std::max(most, addresses_[lane]);
        ++active;
      }
    count += active && most + size - least <= 4 * size ? 1 : active;
  }
  return count;
}

// LDS serves as many lanes at once as it has banks for. Of each bank, all lanes get the same dword; another takes
// another cycle. Wide accesses have fewer, wider banks.
uint64_t AccessCosts::lds_cycles(uint64_t lanes, uint64_t size, bool stores) const {
  const uint64_t wave = get(plan_, plan::wave_size), cell = size <= kBank ? kBank : size <= 8 ? 8 : 16;
  const uint64_t banks = (stores ? store_banks_ : banks_) * kBank / cell, at_once = std::min<uint64_t>(banks, 32);
  const bool mixed = mixed_ && !stores && cell == 16 && banks == 8;
  uint64_t cycles = 0;
  for (uint64_t phase = 0; phase < wave / at_once; ++phase) {
    uint64_t most = 1;
    std::vector<uint64_t> cells;
    for (uint64_t rest = lanes; rest; rest &= rest - 1) {
      const unsigned lane = __builtin_ctzll(rest), quad = lane / 4 % 8;
      if ((mixed ? (quad < 4 ? quad : (quad ^ 1) % 4) + lane / 32 * 4 : lane / at_once) == phase)
        cells.push_back(addresses_[lane] / cell);
    }
    std::ranges::sort(cells);
    cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
    uint64_t of_bank[64] = {};
    for (const uint64_t number : cells)
      most = std::max(most, ++of_bank[number % banks]);
    cycles += most;
  }
  return cycles;
}

} // namespace luthier
