#include "watch.h"

#include <algorithm>
#include <cstring>

namespace luthier {

using namespace layout;

namespace {

uint8_t byte(const char *fact, Field field, unsigned index = 0) {
  return static_cast<uint8_t>(fact[field.offset + index]);
}

UnitSpan span_at(const char *fact, unsigned index) {
  UnitSpan span;
  std::memcpy(&span, fact + fact::spans.offset + size_t{4} * index, sizeof span);
  return span;
}

constexpr uint32_t bits_of(uint8_t half) {
  return half == HALF_LOW ? 0xFFFF : half == HALF_HIGH ? 0xFFFF0000 : 0xFFFFFFFF;
}

} // namespace

thread_local Watch *Watch::current_ = nullptr;

uint64_t Watch::entry() { return reinterpret_cast<uint64_t>(&Watch::step); }

void Watch::begin(const char *watch, unsigned wave_size, unsigned waves, const char *group) {
  watch_ = watch;
  facts_ = pointer<const char *>(watch, watch::facts);
  group_ = group;
  wave_size_ = wave_size;
  hazards_.begin(watch, waves, group);
  const char *rows = pointer<const char *>(watch, watch::streams);
  streams_.clear();
  for (uint64_t index = 0; index < get(watch, watch::stream_count); ++index) {
    const char *row = rows + index * stream::kSize;
    streams_.push_back({unsigned(get(row, stream::counter)), unsigned(get(row, stream::most)),
                        get(row, stream::ordered) != 0, get(row, stream::locks) != 0,
                        unsigned(get(row, stream::beside))});
  }
  for (Wave &wave : waves_)
    forget(wave);
  waves_.resize(waves);
  for (Wave &wave : waves_) {
    wave.queues.resize(streams_.size());
    wave.owners.assign(UNITS, 0);
  }
  tables_.clear();
  table_ = nullptr;
  seen_.clear();
}

void Watch::add(const char *records, const uint64_t *functions) {
  tables_[records] = functions;
  table_ = nullptr; // it may be this one
}

// Nothing here may keep the compiler from leaving by a jump: waves run for long.
int Watch::step(char *wave, char *record) {
  const auto next = reinterpret_cast<int (*)(char *, char *)>(current_->before(wave, record));
  return next(wave, record);
}

__attribute__((noinline)) uint64_t Watch::before(char *wave, char *record) {
  const char *table = pointer<const char *>(wave, wave::table);
  if (table != table_) {
    functions_ = tables_.at(table);
    table_ = table;
  }
  const uint64_t index = (record - table) / record::kSize;
  if (hazards_.active())
    hazards_.before(get(wave, wave::index), index);
  if (facts_)
    late(wave, index);
  return functions_[index];
}

void Watch::late(char *wave, uint64_t index) {
  Wave &state = waves_[get(wave, wave::index)];
  const char *fact = facts_ + index * fact::kSize;
  // No instruction follows itself: one that comes twice was not executed the first time.
  if (state.pending >= 0 && state.pending != static_cast<int64_t>(index))
    issue(state, wave);
  if (state.outstanding || get(fact, fact::limits))
    wait(state, wave, fact);
  if (state.outstanding)
    look(state, wave, fact, index);
  if (get(fact, fact::streams)) {
    state.pending = index;
    state.exec = get(wave, Field{static_cast<uint32_t>(EXEC), 8});
    if (wave_size_ == 32)
      state.exec &= 0xFFFFFFFF;
  }
  if (byte(fact, fact::flags) & FACT_ENDS)
    forget(state);
}

char *Watch::place(char *wave, unsigned unit) const {
  if (unit >= AGPR_UNIT)
    return wave + VECTORS + size_t{VECTOR_ROWS + unit - AGPR_UNIT} * 4 * wave_size_;
  if (unit >= VECTOR_UNIT)
    return wave + VECTORS + size_t{unit - VECTOR_UNIT} * 4 * wave_size_;
  if (size_t{unit} * 4 >= SCALARS)
    return wave + wave::scc.offset;
  return wave + size_t{unit} * 4;
}

Watch::Operation *Watch::fresh(uint32_t record) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Operation>());
    free_.push_back(all_.back().get());
  }
  Operation *made = free_.back();
  free_.pop_back();
  made->record = record;
  made->left = 0;
  made->locks = false;
  made->held.clear();
  made->values.clear();
  return made;
}

void Watch::drop(Operation *operation) { free_.push_back(operation); }

void Watch::forget(Wave &state) {
  state.pending = -1;
  std::unordered_set<Operation *> known;
  for (Queue &queue : state.queues) {
    for (Operation *operation : queue)
      if (operation && known.insert(operation).second)
        drop(operation);
    queue.clear();
  }
  if (state.outstanding)
    std::fill(state.owners.begin(), state.owners.end(), 0);
  state.outstanding = 0;
}

// Add the last instruction executed to its streams, and put its results aside.
void Watch::issue(Wave &state, char *wave) {
  const uint32_t record = static_cast<uint32_t>(state.pending);
  state.pending = -1;
  const char *fact = facts_ + uint64_t{record} * fact::kSize;
  const unsigned results = byte(fact, fact::results), locked = byte(fact, fact::locked);
  const unsigned first = byte(fact, fact::reads) + byte(fact, fact::both) + byte(fact, fact::writes);
  Operation *const with_results = results ? fresh(record) : nullptr, *const with_sources =
                                                                         locked ? fresh(record) : nullptr;
  for (unsigned at = first; at < first + results; ++at)
    hold(state, wave, *with_results, span_at(fact, at), get(fact, fact::replaced));
  if (with_sources)
    with_sources->locks = true;
  for (unsigned at = first + results; at < first + results + locked; ++at)
    hold(state, wave, *with_sources, span_at(fact, at), 0);
  for (unsigned number = 0; number < 2; ++number)
    if (const unsigned stream = byte(fact, fact::streams, number))
      enter(state, wave, stream - 1, streams_[stream - 1].locks ? with_sources : with_results);
  for (Operation *operation : {with_results, with_sources})
    if (operation && !operation->left)
      drop(operation);
}

// Note that an operation holds units, and put the values of its results aside.
//
// @param replaced streams whose older operations do not write these units any more
void Watch::hold(Wave &state, char *wave, Operation &operation, const UnitSpan &units, uint32_t replaced) {
  for (unsigned unit = units.first; unit < units.first + units.count && unit < UNITS; ++unit) {
    const bool is_vector = unit >= VECTOR_UNIT;
    const uint64_t lanes = is_vector ? state.exec : 1;
    if (!lanes)
      continue;
    if (state.owners[unit] && replaced)
      replace(state, unit, units.half, lanes, replaced);
    operation.held.push_back({uint16_t(unit), units.half, lanes, uint32_t(operation.values.size())});
    if (state.owners[unit]++ == 0)
      ++state.outstanding;
    if (operation.locks)
      continue;
    uint32_t *row = reinterpret_cast<uint32_t *>(place(wave, unit));
    operation.values.insert(operation.values.end(), row, row + (is_vector ? wave_size_ : 1));
    const uint32_t bits = bits_of(units.half), poison = get(watch_, watch::poison);
    for (uint64_t rest = lanes; rest; rest &= rest - 1) {
      uint32_t &value = row[__builtin_ctzll(rest)];
      value = (value & ~bits) | (poison & bits);
    }
  }
}

// Note that older operations of some streams do not write lanes of a unit any more.
void Watch::replace(Wave &state, unsigned unit, uint8_t half, uint64_t lanes, uint32_t streams) {
  for (unsigned stream = 0; stream < streams_.size(); ++stream)
    if (streams >> stream & 1)
      for (Operation *older : state.queues[stream])
        if (older)
          for (Held &held : older->held)
            if (held.unit == unit && (held.half == half || !half))
              held.lanes &= ~lanes;
}

// Add an operation to a stream.
void Watch::enter(Wave &state, char *wave, unsigned stream, Operation *operation) {
  const Stream &kind = streams_[stream];
  if (!kind.ordered && !operation)
    return;
  if (operation)
    operation->left |= 1u << stream;
  push(state, wave, stream, operation);
  for (unsigned other = 0; other < streams_.size(); ++other)
    if (kind.beside >> other & 1 && !state.queues[other].empty())
      push(state, wave, other, nullptr);
}

void Watch::push(Wave &state, char *wave, unsigned stream, Operation *operation) {
  Queue &queue = state.queues[stream];
  queue.push_back(operation);
  if (streams_[stream].ordered && queue.size() > streams_[stream].most) { // it has waited for the oldest
    Operation *oldest = queue.front();
    queue.erase(queue.begin());
    done(state, wave, stream, oldest);
  }
}

void Watch::done(Wave &state, char *wave, unsigned stream, Operation *operation) {
  if (!operation || (operation->left &= ~(1u << stream)))
    return;
  for (const Held &held : operation->held) {
    if (--state.owners[held.unit] == 0)
      --state.outstanding;
    if (operation->locks)
      continue;
    uint32_t *row = reinterpret_cast<uint32_t *>(place(wave, held.unit));
    const uint32_t bits = bits_of(held.half);
    for (uint64_t rest = held.lanes; rest; rest &= rest - 1) {
      const unsigned lane = __builtin_ctzll(rest);
      row[lane] = (row[lane] & ~bits) | (operation->values[held.value + lane] & bits);
    }
  }
  drop(operation);
}

void Watch::wait(Wave &state, char *wave, const char *fact) {
  if (get(fact, fact::limits))
    for (unsigned stream = 0; stream < streams_.size(); ++stream) {
      const unsigned limit = byte(fact, fact::limits, streams_[stream].counter);
      Queue &queue = state.queues[stream];
      if (!limit || queue.size() < limit || (!streams_[stream].ordered && limit > 1))
        continue;
      const size_t over = queue.size() - (limit - 1);
      for (size_t index = 0; index < over; ++index)
        done(state, wave, stream, queue[index]);
      queue.erase(queue.begin(), queue.begin() + over);
    }
  if (const unsigned released = byte(fact, fact::released)) {
    Queue &queue = state.queues[released - 1];
    for (Operation *operation : queue)
      done(state, wave, released - 1, operation);
    queue.clear();
  }
}

void Watch::look(Wave &state, const char *wave, const char *fact, uint32_t record) {
  const unsigned reads = byte(fact, fact::reads), both = reads + byte(fact, fact::both);
  for (unsigned at = 0; at < both + byte(fact, fact::writes); ++at) {
    const UnitSpan units = span_at(fact, at);
    for (unsigned unit = units.first; unit < units.first + units.count && unit < UNITS; ++unit)
      if (state.owners[unit])
        use(state, wave, fact, record, unit, units.half, at < both, at >= reads);
  }
}

void Watch::use(Wave &state, const char *wave, const char *fact, uint32_t record, unsigned unit, uint8_t half,
                bool reads, bool overwrites) {
  const uint32_t replaced = get(fact, fact::replaced);
  const bool vector = unit >= VECTOR_UNIT, any_lane = byte(fact, fact::flags) & FACT_ANY_LANE;
  const uint64_t exec = vector && !any_lane ? get(wave, Field{static_cast<uint32_t>(EXEC), 8}) : ~uint64_t{0};
  for (unsigned stream = 0; stream < streams_.size(); ++stream) {
    const Stream &kind = streams_[stream];
    const bool may_replace = replaced >> stream & 1, writes = overwrites && !(reads && may_replace);
    if ((kind.locks && !writes) || (writes && may_replace))
      continue;
    const Queue &queue = state.queues[stream];
    for (size_t index = 0; index < queue.size(); ++index) {
      const Operation *operation = queue[index];
      if (!operation)
        continue;
      uint64_t lanes = 0;
      for (const Held &held : operation->held)
        if (held.unit == unit && (!half || !held.half || half == held.half))
          lanes |= held.lanes & exec;
      if (!lanes)
        continue;
      // A finding is identified by both instructions, the register, the kind of use and the stream.
      const uint64_t key =
          uint64_t{record} << 40 ^ uint64_t { operation->record } << 16 ^ unit << 5 ^ writes << 4 ^ stream;
      if (!seen_.insert(key).second)
        continue;
      char *count = const_cast<char *>(watch_) + watch::count.offset;
      const uint64_t number = __atomic_fetch_add(reinterpret_cast<uint64_t *>(count), 1, __ATOMIC_RELAXED);
      if (number >= get(watch_, watch::capacity))
        continue;
      char *row = pointer<char *>(watch_, watch::found) + number * found::kSize;
      put(row, found::consumer, uint64_t{record});
      put(row, found::producer, uint64_t{operation->record});
      put(row, found::unit, uint64_t{unit});
      put(row, found::stream, uint64_t{stream});
      put(row, found::position, kind.ordered ? queue.size() - 1 - index : uint64_t{0});
      put(row, found::writes, uint64_t{writes});
      put(row, found::wave, get(wave, wave::index));
      put(row, found::lane, vector ? uint64_t(__builtin_ctzll(lanes)) : uint64_t{ABSENT});
      put(row, found::group, group_number(group_));
    }
  }
}

} // namespace luthier
