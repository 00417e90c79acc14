// One thread's share of a launch: its context, the waves of one work-group, its copies of record tables.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "arena.h"
#include "execution_counters.h"
#include "grid.h"
#include "host.h"
#include "watch.h"

namespace luthier {

// Properties that all work-groups of a launch share, and that are not in the structure that compiled code reads.
struct Shape {
  const char *plan;          // layout::plan
  unsigned wave_size, waves; // the latter of the largest work-group
  uint32_t lds_size, lds_limit;
  uint64_t scratch, scratch_lane; // address for the first wave of the first worker, bytes a lane
  const char *watch;              // layout::watch; null where neither waits nor hazards are checked
  bool undefined;                 // undefined values are followed: waves have a shadow behind them
  bool whole;                     // all lanes of all waves are launched
  bool stepped;                   // waves return after every instruction
};

// Return the bytes of a wave, as layout.wave_stride.
uint64_t wave_stride(unsigned wave_size);

class Worker {
public:
  explicit Worker(const Engine &engine);
  ~Worker();
  Worker(const Worker &) = delete;

  // Prepare to run work-groups of this shape as the worker of that number in the launch.
  void prepare(const Shape &shape, unsigned number, Host &host);
  // Take the next work-group from that part, if some of it have not begun.
  void enter(const PartMemory &part);
  void context(layout::Field field, uint64_t value) { put(context_, field, value); }
  uint64_t context(layout::Field field) const { return get(context_, field); }
  uint64_t group(layout::Field field) const { return get(group_, field); }

  // Run until a wave needs help; return one of layout's codes.
  uint64_t run();
  // Return the wave that returned.
  char *current() const { return pointer<char *>(context_, layout::context::current); }
  // Return the key of the table for a wave's MODE and M0.
  static uint64_t key_of(const char *wave);
  // Return the record at which a wave continues.
  static uint64_t record_of(const char *wave);
  // Make the current wave continue in the table of that key, and update that table.
  void switch_table(uint64_t key, Host &host);
  // Make the current wave continue at a record, in the table for its MODE and M0.
  void go_to(uint64_t record, Host &host);
  // Make a wave continue at a record, in the table for its MODE and M0.
  void go_to(char *wave, uint64_t record, Host &host) { go_to(wave, record, key_of(wave), host); }
  // Make the waves of the work-group, and those of later ones, return after every instruction.
  void step(Host &host);
  // Return the waves that have not ended, in their order; none if there is no work-group.
  std::vector<char *> live_waves() const;
  // Undo the count of the current record: it will be executed again.
  void uncount();
  // Return whether a record that must not be executed was executed since `prepare`.
  bool went_beyond() const { return executions(beyond_, beyond_count_) != beyond_before_; }
  // Return whether the work-group is in an earlier state: all its waves at the same records, with the same registers.
  // Then only writes of others can change what it does. Compares with one state, which is replaced from time to time.
  bool repeats();
  // Return whether the work-group has taken that many steps since the last call that returned true.
  bool has_spent(uint64_t steps);
  // Return true once in `times` calls.
  bool is_due(unsigned times) { return ++asked_ % times == 0; }
  // Return the last answer of `repeats` for the work-group that runs. For any thread.
  bool repeated() const { return repeated_.load(std::memory_order_relaxed); }
  // Add the records of the waves that neither wait at a barrier nor have ended; return false if there is no work-group.
  // For any thread.
  bool add_places(std::set<uint64_t> &places) const;
  // Add the executions and active lanes of every record to `counts` and `lanes`, and reset them.
  void take_counts(uint64_t *counts, uint64_t *lanes, uint64_t records);

  // Allows `take_runs` to read the plan, from `prepare` on until the plan is gone.
  class Part {
  public:
    explicit Part(Worker &worker);
    ~Part();
    Part(const Part &) = delete;

  private:
    Worker &worker_;
  };

  // Add the counts so far of records that were executed at least `least` times. For any thread.
  void add_to(Tally &tally, uint64_t least = 1) const;
  // Add the counts of the code that runs to `tally`, and to `kept` unless it is null, and reset them.
  void move_counts(Tally &tally, Tally *kept);
  // Use the functions of runs of instructions that exist now, also in the launch that is under way. For any thread.
  void take_runs();

  std::string_view context_bytes() const { return {context_, layout::context::kSize}; }
  std::string_view group_bytes() const { return {group_, layout::group::kSize}; }
  std::string_view wave_bytes() const;
  // Return the copy of a table; null if there is none.
  const char *table(uint64_t key) const;
  const char *context_address() const { return context_; }
  const char *group_address() const { return group_; }

private:
  // Update the copy of a table with what the host has bound, or make it, from `record` on.
  void sync(uint64_t key, uint64_t record, Host &host);
  void go_to(char *wave, uint64_t record, uint64_t key, Host &host);
  void make_waves(uint64_t stride, unsigned count);
  uint64_t digest() const;
  void leave_lds();
  uint64_t executions(const uint32_t *records, uint64_t count) const;
  // Return the bytes of the records that the master tables have; less than a copy may have room for.
  uint64_t records_size() const;

  // Make room for more records; waves in the copy stay at their records.
  void grow(Arena &records, uint64_t size);

  struct Copy {
    Arena records;
    uint64_t version = ~0ull;
    uint64_t runs_version = ~0ull;   // with which the functions of runs were taken
    std::vector<uint64_t> functions; // of watched records, which lead elsewhere
  };
  struct Tables {
    Arena addresses{8 * layout::TABLES};
    std::unordered_map<uint64_t, Copy> copies;
  };

  const Engine &engine_;
  Arena fixed_, waves_, lds_;
  char *context_, *group_, *first_wave_ = nullptr;
  mutable std::mutex mutex_; // guards which tables exist, and whether the worker has a part in a launch
  std::unordered_map<uint64_t, Tables> codes_, watched_codes_;
  Tables *tables_ = nullptr;
  uint64_t copied_ = 0; // bytes of all copies
  const char *plan_ = nullptr;
  bool takes_part_ = false;
  Watch watch_;
  bool watched_ = false, undefined_ = false;
  const uint32_t *beyond_ = nullptr;
  uint64_t beyond_count_ = 0, beyond_before_ = 0;
  uint64_t stride_ = 0;
  unsigned room_ = 0, waves_count_ = 0;
  struct {
    uint64_t group = ~0ull; // number of the work-group that was looked at
    uint64_t state = 0;     // the digest that later ones are compared with
    uint64_t left = 0, most = 0;
  } seen_; // Brent's algorithm to find a cycle
  struct {
    uint64_t group = ~0ull, steps = 0;
  } spent_;
  std::atomic<bool> repeated_{false};
  unsigned asked_ = 0;
};

// Workers beyond those of threads, made when they are first needed and kept for other launches.
class Workers {
public:
  explicit Workers(const Engine &engine) : engine_(engine) {}
  Worker &at(size_t index) {
    while (all_.size() <= index)
      all_.push_back(std::make_unique<Worker>(engine_));
    return *all_[index];
  }

private:
  const Engine &engine_;
  std::vector<std::unique_ptr<Worker>> all_;
};

} // namespace luthier
