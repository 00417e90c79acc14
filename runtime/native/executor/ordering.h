// The order of accesses in one launch: what happens before what.
//
// Barriers and atomics divide a wave's life into segments. Accesses of one wave are ordered, as are those of a
// work-group with a barrier between them. An atomic, or a load that sees what others store, comes after all that other
// waves did before their atomics at the same address. Only times are kept of that, so two accesses may count as ordered
// that are not; never the other way round.
//
// Accesses in that order may still miss each other's effects, if fences are missing (ordering_fences.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "agreement.h"
#include "bytes.h"
#include "shadow.h"

namespace luthier {

inline constexpr uint32_t kWidest = 64; // bytes of the widest access

struct Segment {
  uint32_t time, group;
  uint32_t barrier; // the first one of the work-group behind it, from 1 on
  uint32_t wave;
  uint32_t complete = 0; // when its stores were, as far as a fence shows; 0: it has none; kNever: they are not
};
inline constexpr uint32_t kNever = ~uint32_t{0};

// Times of what fences have made visible to a wave.
struct Fenced {
  uint32_t near = 0, far = 0; // all before that is not in its caches: those within the work-group, and the device
  uint32_t released = 0;      // of the last release that it has taken over
  uint32_t locked = 0;        // the same, of those that it took over by a comparison and store
  void join(const Fenced &other) {
    near = std::max(near, other.near);
    far = std::max(far, other.far);
    released = std::max(released, other.released);
    locked = std::max(locked, other.locked);
  }
};

// The fence that is missing between two accesses.
enum class Lack { kNothing, kRelease, kAcquire };

// A barrier that, at this point, not all lanes of a wave have reached.
struct Narrow {
  uint32_t record;
  uint64_t exec;
};

struct WaveOrder {
  uint32_t index = 0;
  uint32_t segment = 0;                // the current one; 0: the next access begins a new one
  uint32_t acquired = 0, released = 0; // times
  uint32_t signals = 0, waits = 0;     // barriers that it came to, and passed
  bool plain = false;                  // there were plain accesses in the segment
  bool returned = false; // it, or a wave that it met at a barrier, has done an atomic that returned the old value
  bool meets = false;    // it must take over the knowledge of the others
  bool ended = false;
  bool written_back = false; // it has written back since its last store
  Fenced fenced;
  uint32_t last_barrier = 0, end = 0; // records
  std::vector<Narrow> narrow;
};

// The work-group that a worker runs.
struct GroupOrder {
  uint32_t id = 0;                  // of all that were started, from 1 on
  uint64_t number = 0;              // in the launch
  uint32_t acquired = 0;            // by waves that came to a barrier
  bool returned = false;            // the same of `WaveOrder::returned`
  Fenced fenced;                    // likewise
  Fenced invalidated;               // by any wave, of the caches that all of them share
  std::vector<uint32_t> incomplete; // segments with stores that no fence follows
  std::vector<WaveOrder> waves;
  std::vector<uint8_t> written; // by byte of LDS, and of what an access at its end reaches over
};

class Ordering {
public:
  // Prepare for a launch; `fences` is layout::plan::fences, 0 if they do not matter.
  void begin(uint64_t fences) { fences_ = fences; }
  bool has_fences() const { return fences_ != 0; }
  // Return the work-group of a wave; a worker has one at a time.
  GroupOrder &group(const char *wave) {
    char *place = pointer<char *>(wave, layout::wave::group);
    auto *known = pointer<GroupOrder *>(place, layout::group::watched);
    return known ? *known : begin(place);
  }

  // A wave has reached a barrier, or has only signalled it; a wave has passed it.
  void signal(GroupOrder &group, WaveOrder &wave, uint32_t record);
  void wait(WaveOrder &wave);
  // A wave has reached, or passed, a barrier of the whole grid.
  void signal_grid(GroupOrder &group, WaveOrder &wave);
  void wait_for_grid(WaveOrder &wave);
  // Take over what a wave knows after a barrier: before any access.
  void meet(const GroupOrder &group, WaveOrder &wave) {
    if (wave.meets) {
      wave.meets = false;
      wave.acquired = std::max(wave.acquired, group.acquired);
      wave.returned |= group.returned;
      wave.fenced.join(group.fenced);
    }
  }
  // Return the segment of a wave's plain access.
  uint32_t plain(const GroupOrder &group, WaveOrder &wave) {
    wave.plain = true;
    return wave.segment ? wave.segment : begin(group, wave);
  }
  // Take over what was known at the time of a touch; `locks`: by a comparison and store.
  void acquire(WaveOrder &wave, Touch touch, bool locks) {
    if (!touch.segment)
      return;
    const uint32_t time = segments_[touch.segment].time;
    if (time > wave.acquired)
      take_over(wave, time);
    wave.fenced.join({0, 0, time, locks ? time : 0});
  }
  // A wave has seen a store of another wave, which may signal that all before it is done.
  void acquire_store(GroupOrder &group, WaveOrder &wave, Touch store, bool locks);
  // Return the segment of a wave's atomic, which releases all before it.
  uint32_t release(GroupOrder &group, WaveOrder &wave);

  // Return whether a touch happened before what a wave does now.
  bool before(Touch touch, const GroupOrder &group, const WaveOrder &wave) const {
    const Segment &then = segments_[touch.segment];
    if (!touch.segment || touch.segment == wave.segment)
      return true;
    if (then.group == group.id) {
      if (then.wave == wave.index || then.barrier <= wave.waits)
        return true;
      return then.time < wave.acquired && group.waves[then.wave].released > then.time;
    }
    return then.time < wave.acquired && released_[then.group] > then.time;
  }
  // Return whether an atomic of another work-group may have happened before: several atomics may share a segment with
  // the one that released it.
  bool may_be_before(Touch atomic, const WaveOrder &wave) const {
    const Segment &then = segments_[atomic.segment];
    return then.time <= wave.acquired && released_[then.group] >= then.time;
  }
  const Segment &of(Touch touch) const { return segments_[touch.segment]; }

  // Note that a wave stores to memory in its current segment. Return whether its waits matter now.
  bool store(GroupOrder &group, WaveOrder &wave) {
    if (!fences_)
      return false;
    uint32_t &complete = segments_[wave.segment].complete;
    if (!complete) {
      complete = kNever;
      group.incomplete.push_back(wave.segment);
    }
    wave.written_back = false;
    return true;
  }
  // A wave has executed a part of a fence, in bits such as layout::FENCE_WAITS. Return whether its waits still matter.
  bool fence(GroupOrder &group, WaveOrder &wave, unsigned parts);
  // Return the fence that is missing between a store and what a wave does now, which the store happened before.
  // `cached`: it reads what may be in its caches from before the store.
  Lack lack(Touch store, const GroupOrder &group, const WaveOrder &wave, bool reads, bool cached) const {
    // Two stores that look plain may both be atomic, if the target does not show which ones are.
    if (!fences_ || !store.segment || store.segment == wave.segment || !(reads || fences_ & layout::FENCES_SHOWN))
      return Lack::kNothing;
    const Lack lacks = lack(segments_[store.segment], group, wave, cached);
    if (lacks == Lack::kAcquire && !reads)
      return Lack::kNothing; // it takes nothing from caches
    return lacks != Lack::kNothing && flags_.count(number(store)) ? Lack::kNothing : lacks;
  }
  // Return the number in the launch of a work-group by its id.
  uint64_t number(uint32_t id) const { return numbers_[id]; }

private:
  GroupOrder &begin(char *place);
  uint32_t begin(const GroupOrder &group, WaveOrder &wave);
  void complete(GroupOrder &group, WaveOrder &wave);
  // A wave knows more: what it releases next is later than all that.
  void take_over(WaveOrder &wave, uint32_t time) const {
    wave.acquired = time;
    wave.plain = true; // there is something to release
    if (fences_)
      wave.segment = 0;
  }
  Lack lack(const Segment &store, const GroupOrder &group, const WaveOrder &wave, bool cached) const;

  static uint64_t number(Touch touch) { return uint64_t{touch.segment} << 32 | touch.record; }

  uint64_t fences_ = 0;
  std::unordered_set<uint64_t> flags_; // plain stores that an atomic or such a load has seen: they are atomic
  std::mutex beginning_;               // of work-groups, from several threads
  uint32_t clock_ = 1;
  std::vector<Segment> segments_ = std::vector<Segment>(1); // the first is none
  std::vector<uint32_t> released_{0};                       // by id of the work-group: when it released last
  std::vector<uint64_t> numbers_{0};
  std::unordered_map<const char *, GroupOrder> groups_; // by layout::group, which leads to it
};

} // namespace luthier
