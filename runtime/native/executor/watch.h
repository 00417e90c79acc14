// Late results: registers of operations that may not be done have a pattern, and their uses are found. Hazards
// (hazards.h) are checked in the same place.
//
// Every record of a watched worker leads to `step`, which checks the instruction (layout::fact) and continues with the
// record's own function. An instruction has been executed when the next one of its wave begins: then its results are
// put aside. luthier/hazards/wait_counters/model.py describes when operations are done.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grid.h"
#include "hazards.h"

namespace luthier {

struct UnitSpan { // consecutive units, or halves of them
  uint16_t first;
  uint8_t count, half;
};

class Watch {
public:
  // Prepare for a launch; `wave` and `stride` of waves of that size.
  void begin(const char *watch, unsigned wave_size, unsigned waves, const char *group);
  // The functions of a table of records.
  void add(const char *records, const uint64_t *functions);
  void activate() { current_ = this; }

  // Return the function that every watched record leads to.
  static uint64_t entry();

private:
  struct Held { // a register of an operation that may not be done
    uint16_t unit;
    uint8_t half;
    uint64_t lanes;
    uint32_t value; // in `values`
  };
  struct Operation {
    uint32_t record;
    uint32_t left = 0; // streams in which it is outstanding
    bool locks = false;
    std::vector<Held> held;
    std::vector<uint32_t> values;
  };
  using Queue = std::vector<Operation *>;
  struct Wave {
    std::vector<Queue> queues;   // by stream, the oldest first
    std::vector<uint8_t> owners; // operations that hold each unit
    unsigned outstanding = 0;    // units with owners
    int64_t pending = -1;        // record that is being executed and adds to streams
    uint64_t exec = 0;           // before it
  };

  static int step(char *wave, char *record);
  uint64_t before(char *wave, char *record);
  void late(char *wave, uint64_t record);
  void issue(Wave &state, char *wave);
  void hold(Wave &state, char *wave, Operation &operation, const UnitSpan &units, uint32_t replaced);
  void replace(Wave &state, unsigned unit, uint8_t half, uint64_t lanes, uint32_t streams);
  void enter(Wave &state, char *wave, unsigned stream, Operation *operation);
  void wait(Wave &state, char *wave, const char *fact);
  void push(Wave &state, char *wave, unsigned stream, Operation *operation);
  void done(Wave &state, char *wave, unsigned stream, Operation *operation);
  void drop(Operation *operation);
  void forget(Wave &state);
  void look(Wave &state, const char *wave, const char *fact, uint32_t record);
  void use(Wave &state, const char *wave, const char *fact, uint32_t record, unsigned unit, uint8_t half, bool reads,
           bool overwrites);
  char *place(char *wave, unsigned unit) const;
  Operation *fresh(uint32_t record);

  static thread_local Watch *current_;
  Hazards hazards_;
  const char *watch_ = nullptr, *facts_ = nullptr, *group_ = nullptr; // no facts: waits are not checked
  unsigned wave_size_ = 0;
  struct Stream {
    unsigned counter, most;
    bool ordered, locks;
    unsigned beside; // those whose operations are counted in order with its own
  };
  std::vector<Stream> streams_;
  std::vector<Wave> waves_;
  std::unordered_map<const char *, const uint64_t *> tables_;
  const char *table_ = nullptr;
  const uint64_t *functions_ = nullptr;
  std::vector<std::unique_ptr<Operation>> all_;
  std::vector<Operation *> free_;
  std::unordered_set<uint64_t> seen_;
};

} // namespace luthier
