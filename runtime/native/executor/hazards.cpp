#include "hazards.h"

namespace luthier {

using namespace layout;

namespace {

constexpr unsigned kFirstBits = 10;

} // namespace

void Hazards::begin(const char *watch, unsigned waves, const char *group) {
  follow_ = pointer<Follow>(watch, watch::follow);
  if (!follow_)
    return;
  watch_ = watch;
  group_ = group;
  if (get(watch, watch::automaton) != automaton_ || table_.empty()) {
    automaton_ = get(watch, watch::automaton);
    table_.clear();
    resize(kFirstBits);
    forgotten_ = get(watch, watch::forgotten_count);
  }
  if (const uint64_t count = get(watch, watch::forgotten_count); count != forgotten_) {
    const auto *records = pointer<const uint32_t *>(watch, watch::forgotten);
    forget({records + forgotten_, records + count});
    forgotten_ = count;
  }
  waves_.resize(waves);
  for (Wave &wave : waves_) {
    wave.state = 0;
    wave.last = ~0u;
    wave.executed = 0;
  }
  seen_.clear();
}

void Hazards::resize(unsigned bits) {
  const std::vector<Transition> before = std::move(table_);
  table_ = std::vector<Transition>(size_t{1} << bits, kNone);
  shift_ = 64 - bits;
  known_ = 0;
  for (const Transition &each : before)
    if (each.key != ~0ull)
      insert(each);
}

void Hazards::forget(const std::unordered_set<uint32_t> &records) {
  for (Transition &each : table_)
    if (each.key != ~0ull && records.count(static_cast<uint32_t>(each.key)))
      each.key = ~0ull;
  resize(64 - shift_); // so that entries which collided with them are found again
}

void Hazards::insert(const Transition &made) {
  uint64_t at = made.key * 0x9E3779B97F4A7C15 >> shift_;
  while (table_[at].key != ~0ull && table_[at].key != made.key)
    at = (at + 1) & (table_.size() - 1);
  known_ += table_[at].key == ~0ull;
  table_[at] = made;
}

__attribute__((noinline)) uint64_t Hazards::learn(uint64_t key) {
  Transition made[FOLLOW_MOST];
  const uint64_t count = follow_(watch_, static_cast<uint32_t>(key >> FOLLOW_SHIFT), static_cast<uint32_t>(key), made);
  for (uint64_t index = 0; index < count; ++index) {
    if (known_ * 2 >= table_.size())
      resize(65 - shift_);
    insert(made[index]);
  }
  return made[0].next;
}

// Handle rare cases; return whether the wave's state is no longer known.
__attribute__((noinline)) bool Hazards::special(Wave &wave, unsigned number, uint32_t record, uint64_t next) {
  if (next & FOLLOW_ENDS) {
    wave.state = 0;
    wave.last = ~0u;
    wave.executed = 0;
    return true;
  }
  const char *hit = pointer<const char *>(watch_, watch::hits) + ((next >> FOLLOW_SHIFT) - 1) * hit::kSize;
  for (bool more = true; more; hit += hit::kSize) {
    more = get(hit, hit::more);
    const uint32_t producer = producer_of(wave, hit);
    // Records of code take less than 28 bits: an object has less than 4 GB.
    const uint64_t key = uint64_t{record} << 36 | uint64_t{producer & 0xFFFFFFF} << 8 | (get(hit, hit::rule) & 0xFF);
    if (!seen_.insert(key).second)
      continue;
    char *count = const_cast<char *>(watch_) + watch::met_count.offset;
    const uint64_t index = __atomic_fetch_add(reinterpret_cast<uint64_t *>(count), 1, __ATOMIC_RELAXED);
    if (index >= get(watch_, watch::met_capacity))
      continue;
    char *row = pointer<char *>(watch_, watch::met) + index * met::kSize;
    put(row, met::consumer, uint64_t{record});
    put(row, met::producer, uint64_t{producer});
    put(row, met::hit, (hit - pointer<const char *>(watch_, watch::hits)) / hit::kSize);
    put(row, met::wave, uint64_t{number});
    put(row, met::group, group_number(group_));
  }
  return false;
}

// Return the last of the candidates that the wave has executed.
uint32_t Hazards::producer_of(const Wave &wave, const char *hit) const {
  const auto *producers = pointer<const uint8_t *>(hit, hit::producers);
  const uint64_t oldest = wave.executed > LOOK_BACK ? wave.executed - LOOK_BACK : 0;
  for (uint64_t at = wave.executed; producers && at-- > oldest;)
    if (const uint32_t record = wave.history[at % LOOK_BACK]; producers[record])
      return record;
  return static_cast<uint32_t>(ABSENT);
}

} // namespace luthier
