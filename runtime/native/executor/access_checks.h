// Checks of every memory access and barrier of one launch: races, reads of unwritten memory, barriers that not all
// waves reach.
#pragma once

#include <map>
#include <mutex>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "observer.h"
#include "ordering.h"
#include "shadow.h"

namespace luthier {

struct Checks {
  bool races = false, uninitialised = false, barriers = false;
};

class AccessChecks final : public Observer {
public:
  explicit AccessChecks(const Checks &wanted) : wanted_(wanted) {}
  // Begin to check a launch, by a plan of its kernel; called before work-groups run.
  void begin(const char *plan);
  bool wants_accesses() const override { return wanted_.races || wanted_.uninitialised; }
  // Return whether accesses must be checked in the order in which they happen: only one thread at a time may report
  // them.
  bool wants_order() const { return wanted_.races; }
  void observe(const Instruction &instruction, const char *access, uint32_t event) override;
  // Return and forget the findings so far.
  std::vector<wire::Sighting> take();

  // The accesses of the launch to memory, to compare them with others when it has ended.
  const char *plan() const { return plan_; }
  const Shadow &memory() const { return memory_; }
  const Histories &histories() const { return histories_; }
  const Ordering &ordering() const { return ordering_; }
  // Return the number of bytes of the last access of a record.
  uint64_t size_of(uint32_t record) const { return sizes_[record]; }
  // Return the dwords (addresses divided by 4) that the launch read while others may store to them: by loads that see
  // such stores, and by atomics that return the old value.
  const std::unordered_set<uint64_t> &heard() const { return heard_; }

private:
  // Consecutive lanes whose bytes are contiguous, or all the same.
  struct Run {
    uint64_t address;
    unsigned lane, count;
    bool repeats;
    uint64_t merged; // first lanes of earlier runs with the same bytes
    uint64_t starts() const { return merged | uint64_t{1} << lane; }
  };
  // Lanes of an instruction in one kind of memory.
  struct Lanes {
    uint64_t base = 0; // of LDS
    bool in_lds = false, scalar = false;
    uint32_t size = 0, record = 0;
    unsigned count = 0;
    Run runs[64];
    // Add a run, instead of the last one if that has the same bytes and lanes are merged.
    void add(const Run &run, bool merges) {
      Run *const last = count ? &runs[count - 1] : nullptr;
      if (merges && last && last->address == run.address && last->count == run.count && last->repeats == run.repeats) {
        last->merged = last->starts();
        last->lane = run.lane;
      } else {
        runs[count++] = run;
      }
    }
  };
  struct Where {
    GroupOrder &group;
    WaveOrder &wave;
  };
  // The change of the history of cells by an access.
  struct Change {
    void begin(uint32_t now, uint32_t before) {
      stamp = now;
      from = before;
      moved = other = kRoles;
      races = stored = false;
      kind = wire::FindingKind::kRace;
    }
    uint32_t stamp = 0, from = 0, to = 0;
    Role moved = kRoles;                // the role that the lane of the previous read gets
    bool races = false, stored = false; // `stored`: it does if the value changes
    wire::FindingKind kind = wire::FindingKind::kRace;
    Role other = kRoles; // of the access that it races with
  };

  // A scalar load of memory, and while nothing else accesses it, the history that only its cells have.
  struct RepeatedRead {
    uint64_t address = 0;
    uint32_t size = 0, history = 0; // 0: none
    uint64_t moves = 0;             // of the history, at that load
  };

  void access(const Where &where, const char *wave, uint32_t record, const char *access);
  bool reads_again(const Where &where, const char *wave, uint32_t record, const char *access);
  void note_repeated(const Lanes &lanes);
  void sort(const char *wave, const char *access, bool merges, Lanes &in_memory, Lanes &in_lds) const;
  void touch(const Where &where, const Lanes &lanes, unsigned use);
  void atomic(const Where &where, const Lanes &lanes, unsigned use);
  void hear(const Lanes &lanes, bool loads);
  void meet_atomics(const Where &where, const Lanes &lanes, unsigned use);
  bool is_too_narrow(const Where &where, const Lanes &lanes, Touch last) const;
  Role meet(const Where &where, const Lanes &lanes, const History &before, unsigned use);
  unsigned use_in_lds(uint32_t record) const {
    return pointer<const uint16_t *>(plan_, layout::plan::uses)[record] >> layout::USE_LDS_SHIFT;
  }
  bool is_guard(uint32_t record) const { return use_in_lds(record) & layout::USE_GUARDS; }
  wire::FindingKind kind_of_read(uint32_t record) const;
  Touch own(const Where &where, const Lanes &lanes, Touch touch) const;
  Role add_read(const Where &where, Touch now, History &history) const;
  void read(const Where &where, const Lanes &lanes, Touch now, Change &made);
  void write(const Where &where, const Lanes &lanes, Touch now, Change &made);
  bool lacks_fence(const Where &where, const Lanes &lanes, const History &before, bool reads, Change &made) const;
  uint32_t readers(const History &before, uint32_t writer) const;
  template <typename Each, typename EachWhole>
  void each_span(const Lanes &lanes, bool writes, Each each, EachWhole each_whole);
  template <typename Each> void each_span(const Lanes &lanes, Each each);
  template <typename Make> void change(const Where &where, const Lanes &lanes, Role role, Make make);
  // Cells of a run that have the same history.
  struct Cells {
    const Shadow::Span &span;
    unsigned begin, end;
  };
  static void put_lanes(const Lanes &lanes, const Run &run, Cells cells, Role role, Role moved);
  void tell(const Where &where, const Lanes &lanes, const Run &run, Cells cells, const Change &made);
  void look_for_unwritten(const Where &where, const Lanes &lanes);
  bool is_unwritten(const Where &where, const Lanes &lanes, uint64_t address);
  void note_unwritten(const Where &where, const Lanes &lanes, uint64_t address, unsigned lane);
  bool is_in_doubt(const Where &where, const Lanes &lanes);
  bool is_of_others(const Where &where, const Lanes &lanes, Touch touch) const {
    return lanes.in_lds && ordering_.of(touch).group != where.group.id;
  }
  bool collides(const Where &where, const Lanes &lanes, Touch touch) const {
    return touch.segment && touch.segment != where.wave.segment && !is_of_others(where, lanes, touch) &&
           !ordering_.before(touch, where.group, where.wave);
  }
  // A store to where another lane has stored: not a race if both store the same value.
  struct Silent {
    std::tuple<uint64_t, uint64_t, unsigned> lane() const { return {race.record, race.other_record, race.lane}; }
    wire::Sighting race;
    uint64_t address, bytes;
    uint32_t before;
  };
  // Where two accesses meet: that of a lane, and what is known of the other one.
  struct Pair {
    wire::FindingKind kind;
    uint64_t lane_address, address;
    unsigned lane, other_lane;
    Touch other;
  };
  wire::Sighting describe(const Where &where, const Lanes &lanes, const Pair &pair);
  void settle();
  void add(const wire::Sighting &race);

  void barrier(const Where &where, const char *wave, uint32_t record, uint32_t event);
  void reappear(const Where &where, uint32_t record, uint64_t lanes);
  void missed(const GroupOrder &group, const WaveOrder &waits, const WaveOrder &ended);
  void missed(const GroupOrder &group, const WaveOrder &wave, const Narrow &barrier, uint64_t lanes);

  wire::Sighting &note(wire::FindingKind kind, uint64_t record, uint64_t other);
  void report_waits() {
    if (ordering_.has_fences())
      put(const_cast<char *>(instruction_->wave), layout::wave::incomplete, uint64_t{1});
  }
  Shadow &shadow(const Lanes &lanes) { return lanes.in_lds ? lds_ : memory_; }
  void remember(uint32_t record, uint32_t size);

  const Checks wanted_;
  const char *plan_ = nullptr;
  Ordering ordering_;
  Histories histories_;
  Shadow memory_{histories_}, lds_{histories_};
  std::array<Change, 64> changes_; // of an instruction, by `Change::from`
  uint32_t stamp_ = 0;
  int reported_lane_ = -1;                   // the lane for which a race was reported
  const Instruction *instruction_ = nullptr; // being reported
  Instruction last_{};                       // that `silent_` belongs to
  std::vector<Silent> silent_;
  std::vector<uint8_t> sizes_;                  // by record, of its last access
  std::vector<RepeatedRead> repeated_;          // by record
  std::unordered_set<uint64_t> heard_, loaded_; // the latter by loads
  std::mutex mutex_;                            // of what is found
  std::map<std::tuple<wire::FindingKind, uint64_t, uint64_t>, wire::Sighting> found_;
};

} // namespace luthier
