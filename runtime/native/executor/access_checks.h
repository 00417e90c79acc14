// Checks of one launch that look at every access of memory and every barrier: races, reads of what nobody has written,
// barriers that not all come to.
#pragma once

#include <map>
#include <tuple>
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
  // Before work-groups run that are a part of the grid, by a plan of the launch's kernel.
  void next_part(const Part &part, const char *plan) {
    plan_ = plan;
    ordering_.next_part(part);
  }
  void observe(const Instruction &instruction, const char *access, uint32_t event) override;
  // Return what was found so far, and forget it.
  std::vector<wire::Sighting> take();

private:
  // Lanes of an instruction in one kind of memory.
  struct Lanes {
    uint64_t base = 0; // of LDS
    bool in_lds = false;
    unsigned count = 0;
    uint32_t size = 0, record = 0;
    uint64_t addresses[64];
    uint8_t lanes[64];
  };
  struct Where {
    GroupOrder &group;
    WaveOrder &wave;
  };

  void access(Where where, const char *wave, uint32_t record, const char *access);
  void touch(Where where, const Lanes &lanes, unsigned use);
  void atomic(Where where, const Lanes &lanes, unsigned use);
  void read(Where where, const Lanes &lanes);
  void write(Where where, const Lanes &lanes);
  void look_for_unwritten(Where where, const Lanes &lanes);
  bool is_in_doubt(Where where, const Lanes &lanes);
  bool collides(Where where, const Lanes &lanes, Touch touch) const {
    return touch.segment && !(lanes.in_lds && ordering_.of(touch).group != where.group.id) &&
           !ordering_.before(touch, where.group, where.wave);
  }
  // A store to where somebody else has stored, which is no race if it stores what is there.
  struct Silent {
    std::tuple<uint64_t, uint64_t, unsigned> lane() const { return {race.record, race.other_record, race.lane}; }
    wire::Sighting race;
    uint64_t address, bytes;
    uint32_t before;
  };
  wire::Sighting describe(Where where, const Lanes &lanes, unsigned index, Touch other, uint64_t address);
  void settle();
  void add(const wire::Sighting &race);
  void race(Where where, const Lanes &lanes, unsigned index, Touch other, uint64_t address);

  void barrier(Where where, const char *wave, uint32_t record, uint32_t event);
  void reappear(Where where, uint32_t record, uint64_t lanes);
  void missed(const GroupOrder &group, const WaveOrder &waits, const WaveOrder &ended);

  wire::Sighting &note(wire::Sight kind, uint64_t record, uint64_t other);
  Shadow &shadow(const Lanes &lanes) { return lanes.in_lds ? lds_ : memory_; }
  void remember(uint32_t record, uint32_t size);

  const Checks wanted_;
  const char *plan_ = nullptr;
  Ordering ordering_;
  Shadow memory_, lds_;
  Instruction last_{}; // the one that `silent_` is of
  std::vector<Silent> silent_;
  std::vector<uint8_t> sizes_; // by record, of its last access
  std::map<std::tuple<wire::Sight, uint64_t, uint64_t>, wire::Sighting> found_;
};

} // namespace luthier
