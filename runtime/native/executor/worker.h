// One thread's share of a launch: its context, the waves of one work-group, its copies of record tables.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

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
};

// Return the bytes of a wave, as layout.wave_stride.
uint64_t wave_stride(unsigned wave_size);

class Worker {
public:
  explicit Worker(const Engine &engine);
  ~Worker();
  Worker(const Worker &) = delete;

  // Makes ready to run work-groups of such a shape as the worker of that number in the launch.
  void prepare(const Shape &shape, unsigned number, Host &host);
  // Lets the next work-group be one of that part, if some of it have not begun.
  void enter(const PartMemory &part);
  void context(layout::Field field, uint64_t value) { put(context_, field, value); }
  uint64_t context(layout::Field field) const { return get(context_, field); }
  uint64_t group(layout::Field field) const { return get(group_, field); }

  // Runs until something needs help; one of layout's codes.
  uint64_t run();
  // The wave that came back.
  char *current() const { return pointer<char *>(context_, layout::context::current); }
  // The key of the table that a wave's MODE and M0 ask for.
  static uint64_t key_of(const char *wave);
  // The record a wave continues at.
  static uint64_t record_of(const char *wave);
  // Lets the current wave continue in the table of that key, brought up to date.
  void switch_table(uint64_t key, Host &host);
  // Lets the current wave continue at a record, in the table that its MODE and M0 ask for.
  void go_to(uint64_t record, Host &host);
  // Takes the execution of the current record back: it will be executed again.
  void uncount();
  // Return whether a record that must not be executed was executed since `prepare`.
  bool went_beyond() const { return executions(beyond_, beyond_count_) != beyond_before_; }
  // Return whether the work-group is in a state that it was in before: all its waves where they were, with the same in
  // all registers. So only what others write can change what it does. Looks at one state a call, and at another one
  // from time to time.
  bool repeats();
  // Return true once in so many times.
  bool is_due(unsigned times) { return ++asked_ % times == 0; }
  // Return what it was at the last look, of the work-group that runs; from any thread.
  bool repeated() const { return repeated_.load(std::memory_order_relaxed); }
  // Adds the records at which waves are that neither wait at a barrier nor have ended; false if there is no work-group.
  // From any thread.
  bool add_places(std::set<uint64_t> &places) const;
  // Adds what every record was executed, and its active lanes, to `counts` and `lanes`, and begins at 0 again.
  void take_counts(uint64_t *counts, uint64_t *lanes, uint64_t records);

  // From `prepare` on until the plan is gone, as long as one of these lives `take_runs` may look at it.
  class Part {
  public:
    explicit Part(Worker &worker);
    ~Part();
    Part(const Part &) = delete;

  private:
    Worker &worker_;
  };

  // Adds what was executed so far, of records that were executed at least so often; from any thread.
  void add_to(Tally &tally, uint64_t least = 1) const;
  // Lets runs of instructions that have a function by now be executed by it, also in the launch that is under way; from
  // any thread.
  void take_runs();

  std::string_view context_bytes() const { return {context_, layout::context::kSize}; }
  std::string_view group_bytes() const { return {group_, layout::group::kSize}; }
  std::string_view wave_bytes() const;
  // The copy of a table; null if there is none.
  const char *table(uint64_t key) const;
  const char *context_address() const { return context_; }
  const char *group_address() const { return group_; }

private:
  // Brings the copy of a table up to date, from what the host has bound; where there is none yet, from `record` on.
  void sync(uint64_t key, uint64_t record, Host &host);
  void go_to(uint64_t record, uint64_t key, Host &host);
  void make_waves(uint64_t stride, unsigned count);
  uint64_t digest() const;
  void leave_lds();
  uint64_t executions(const uint32_t *records, uint64_t count) const;
  // Return the bytes of the records that the master tables have; less than a copy may have room for.
  uint64_t records_size() const;

  // Makes room for more records; waves that are in the copy stay at theirs.
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
  mutable std::mutex mutex_; // of what tables there are, and of whether there is a part in a launch
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
  } seen_; // Brent's way to find a cycle
  std::atomic<bool> repeated_{false};
  unsigned asked_ = 0;
};

// Workers beyond those of threads, which are made when they are first needed and kept for other launches.
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
