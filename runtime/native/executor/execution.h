// Waves executed: work-groups of a grid, from the state that a plan describes to their end.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <vector>

#include "host.h"
#include "thread_pool.h"
#include "worker.h"

namespace luthier {

struct Triple {
  uint32_t x, y, z;
};

// The dispatch that is executed.
struct Dispatch {
  const char *plan = nullptr;             // layout::plan
  uint64_t packet = 0, queue = 0, id = 0; // the AQL packet's address, amd_queue_t's, and the packet's number
  uint64_t code = 0;                      // address of the code's first byte
  uint64_t kernarg = 0;                   // address of the arguments
  uint32_t lds_size = 0;
  uint64_t scratch_lane = 0;               // bytes
  bool cooperative = false;                // all work-groups run at once
  bool backward = false;                   // the last work-group comes first, and of each its last wave
  uint64_t quantum = 4096;                 // backward branches of a wave's turn
  uint64_t step_limit = uint64_t{1} << 62; // backward branches of a work-group
  // Initial states of waves that do not begin as a kernel's do: layout.DISPATCH describes them.
  const char *sgprs = nullptr, *images = nullptr, *lds_image = nullptr;
  uint64_t image_size = 0;
  uint32_t scc = 0;
  const char *watch = nullptr; // layout::watch
};

class Execution {
public:
  Execution(Host &host, const Dispatch &dispatch);
  ~Execution();

  // Makes ready to run `groups` work-groups of `items` work-items, the first of which has the id `first`, on that many
  // workers.
  void set_up(Triple first, Triple groups, Triple items, unsigned workers);
  // Makes a worker ready, which is the one of that number.
  void prepare(Worker &worker, unsigned number);
  // Runs a worker until it is done, stopped, or it is another's turn; helps where compiled code cannot go on.
  uint64_t advance(Worker &worker);
  // Advance up to where the host has to help: return one of layout's codes, and then `resume`.
  uint64_t advance_alone(Worker &worker);
  void resume(Worker &worker);

  // Runs all work-groups of an execution that is set up, on this thread with `own` and up to `helpers` others.
  void run(ThreadPool &pool, Worker &own, unsigned helpers);
  // Run with a worker for each work-group: they take turns.
  void run_together(ThreadPool &pool, Worker &own, const std::vector<Worker *> &workers, unsigned helpers);

  // Lets it end soon; from any thread.
  void abort() { __atomic_store_n(abort_flag(), 1, __ATOMIC_RELAXED); }
  bool aborted() const { return __atomic_load_n(const_cast<Execution *>(this)->abort_flag(), __ATOMIC_RELAXED); }
  const RangeTable &ranges() const { return *ranges_; }

private:
  uint32_t *abort_flag() { return reinterpret_cast<uint32_t *>(launch_ + layout::launch::abort.offset); }
  void fill();
  void set_items(Triple items);
  void work_together();
  bool goes_outside(Worker &worker);
  bool sees_more(Worker &worker);

  Host &host_;
  Dispatch dispatch_;
  const char *plan_;
  Shape shape_{};
  std::shared_ptr<const RangeTable> ranges_;
  BoundsCheck *bounds_ = nullptr;
  Observer *observer_ = nullptr;
  std::vector<std::shared_ptr<const RangeTable>> kept_; // tables that records may still look into
  alignas(64) char launch_[layout::launch::kSize] = {};
  alignas(64) char sgprs_[layout::SCALARS] = {};
  std::string lanes_;
  std::mutex mutex_;
  std::deque<Worker *> ready_; // of a cooperative launch: whose turn it is next
  unsigned unfinished_ = 0;
  uint64_t scratch_size_ = 0; // of all workers
  std::chrono::steady_clock::time_point moved_;
};

// Patience with a cooperative launch in which nothing moves; then it is a deadlock.
constexpr auto kPatience = std::chrono::seconds(5);
constexpr uint32_t kResidentGroups = 1024;

} // namespace luthier
