#include "ordering.h"

#include "grid.h"

namespace luthier {

using namespace layout;

GroupOrder &Ordering::begin(char *place) {
  std::lock_guard lock(beginning_);
  GroupOrder *const now = &groups_[place];
  put(place, group::watched, now);
  now->number = group_number(place);
  now->id = static_cast<uint32_t>(numbers_.size());
  now->acquired = 0;
  now->returned = false;
  now->fenced = now->invalidated = {};
  now->incomplete.clear();
  now->waves.assign(get(place, group::wave_count), {});
  for (uint32_t index = 0; index < now->waves.size(); ++index)
    now->waves[index].index = index;
  now->written.assign(get(place, group::lds_size) + kWidest, 0);
  numbers_.push_back(now->number);
  released_.push_back(0);
  return *now;
}

uint32_t Ordering::begin(const GroupOrder &group, WaveOrder &wave) {
  segments_.push_back({clock_, group.id, wave.signals + 1, wave.index});
  return wave.segment = static_cast<uint32_t>(segments_.size() - 1);
}

void Ordering::signal(GroupOrder &group, WaveOrder &wave, uint32_t record) {
  meet(group, wave);
  ++wave.signals;
  wave.last_barrier = record;
  wave.segment = 0;
  group.acquired = std::max(group.acquired, wave.acquired);
  group.returned |= wave.returned;
  group.fenced.join(wave.fenced);
  wave.written_back = false; // what other waves store before the barrier is not
}

void Ordering::wait(WaveOrder &wave) {
  ++wave.waits;
  wave.segment = 0;
  wave.meets = true;
}

void Ordering::signal_grid(GroupOrder &group, WaveOrder &wave) {
  meet(group, wave);
  complete(group, wave);
  wave.released = released_[group.id] = ++clock_;
  wave.segment = 0;
}

void Ordering::wait_for_grid(WaveOrder &wave) {
  wave.acquired = clock_;
  wave.fenced = {clock_, clock_, clock_, clock_};
  wave.segment = 0;
}

void Ordering::acquire_store(GroupOrder &group, WaveOrder &wave, Touch store, bool locks) {
  const Segment &then = segments_[store.segment];
  if (fences_ && store.segment)
    flags_.insert(number(store));
  if (!store.segment || (then.group == group.id && then.wave == wave.index))
    return;
  if (before(store, group, wave)) { // later stores may have been complete at it than at what was seen before
    wave.fenced.join({0, 0, then.time, locks ? then.time : 0});
    return;
  }
  ++clock_;
  wave.fenced.join({0, 0, then.time, locks ? clock_ : 0});
  released_[then.group] = clock_;
  if (then.group == group.id) {
    group.waves[then.wave].released = clock_;
    group.waves[then.wave].segment = 0; // what it does next is not known yet
  } else {
    for (auto &[place, other] : groups_)
      if (other.id == then.group)
        other.waves[then.wave].segment = 0;
  }
  take_over(wave, clock_);
}

uint32_t Ordering::release(GroupOrder &group, WaveOrder &wave) {
  if (!wave.segment || wave.plain) {
    ++clock_;
    begin(group, wave);
    wave.plain = false;
  }
  wave.released = released_[group.id] = segments_[wave.segment].time;
  return wave.segment;
}

} // namespace luthier
