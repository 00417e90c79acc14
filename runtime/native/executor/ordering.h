// The order of accesses in one launch: what happens before what.
//
// Barriers and atomics divide a wave's life into segments. Accesses of one wave are ordered, as are those of a
// work-group with a barrier between them. An atomic, or a load that sees what others store, comes after all that other
// waves did before their atomics at the same address. Only times are kept of that, so two accesses may count as ordered
// that are not; never the other way round.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "bytes.h"
#include "shadow.h"

namespace luthier {

inline constexpr uint32_t kWidest = 64; // bytes of the widest access

struct Segment {
  uint32_t time, group;
  uint32_t barrier; // the first one of the work-group behind it, from 1 on
  uint32_t wave;
};

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
  uint32_t last_barrier = 0, end = 0; // records
  std::vector<Narrow> narrow;
};

// The work-group that a worker runs.
struct GroupOrder {
  uint32_t id = 0;       // of all that were started, from 1 on
  uint64_t number = 0;   // in the launch
  uint32_t acquired = 0; // by waves that came to a barrier
  bool returned = false; // the same of `WaveOrder::returned`
  std::vector<WaveOrder> waves;
  std::vector<uint8_t> written; // by byte of LDS, and of what an access at its end reaches over
};

class Ordering {
public:
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
    }
  }
  // Return the segment of a wave's plain access.
  uint32_t plain(const GroupOrder &group, WaveOrder &wave) {
    wave.plain = true;
    return wave.segment ? wave.segment : begin(group, wave);
  }
  // Take over what was known at the time of a touch.
  void acquire(WaveOrder &wave, Touch touch) {
    if (touch.segment && segments_[touch.segment].time > wave.acquired) {
      wave.acquired = segments_[touch.segment].time;
      wave.plain = true; // there is something to release
    }
  }
  // A wave has seen a store of another wave, which may signal that all before it is done.
  void acquire_store(GroupOrder &group, WaveOrder &wave, Touch store);
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
  // Return the number in the launch of a work-group by its id.
  uint64_t number(uint32_t id) const { return numbers_[id]; }

private:
  GroupOrder &begin(char *place);
  uint32_t begin(const GroupOrder &group, WaveOrder &wave);

  std::mutex beginning_; // of work-groups, from several threads
  uint32_t clock_ = 1;
  std::vector<Segment> segments_ = std::vector<Segment>(1); // the first is none
  std::vector<uint32_t> released_{0};                       // by id of the work-group: when it released last
  std::vector<uint64_t> numbers_{0};
  std::unordered_map<const char *, GroupOrder> groups_; // by layout::group, which leads to it
};

} // namespace luthier
