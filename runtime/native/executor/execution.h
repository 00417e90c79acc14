// Executes the waves of a grid's work-groups, from the state that a plan describes to their end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "grid.h"
#include "host.h"
#include "thread_pool.h"
#include "worker.h"

namespace luthier {

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
  uint64_t resident = 0;                   // work-groups that may run at once
  uint64_t quantum = 4096;                 // backward branches of a wave's turn
  uint64_t step_limit = uint64_t{1} << 62; // backward branches of a work-group
  // Initial states of waves that do not begin as a kernel's do: layout.DISPATCH describes them.
  const char *sgprs = nullptr, *images = nullptr, *lds_image = nullptr;
  uint64_t image_size = 0;
  uint32_t scc = 0;
  const char *watch = nullptr; // layout::watch
};

// Return the number of work-groups that the device of a plan holds at once, by their waves, bytes of LDS, and bytes of
// scratch a lane.
uint64_t resident_groups(const char *plan, uint64_t waves, uint64_t lds, uint64_t scratch_lane);

// A launch that is under way.
struct Progress {
  uint64_t groups = 0, begun = 0, running = 0, resident = 0; // work-groups
  bool is_full = false;                                      // others cannot begin before one of those that run ends
  bool repeats = false; // all work-groups that run are in states in which they were before
  // Records of waves that neither wait at a barrier nor have ended, and the number of work-groups with such waves.
  std::map<uint64_t, uint64_t> places;
};

class Execution {
public:
  Execution(Host &host, const Dispatch &dispatch);
  ~Execution();

  // Prepare to run the work-groups of a grid on a number of threads. At least `together` work-groups, if there are as
  // many, take turns from the beginning.
  void set_up(const Grid &grid, unsigned threads, uint64_t together);
  // Prepare the next worker; return false if no more may run.
  bool prepare(Worker &worker);
  // Run a worker until it is done or stopped, or its turn is over; help where compiled code cannot continue.
  uint64_t advance(Worker &worker);
  // Advance up to where the host has to help: return one of layout's codes, and then `resume`.
  uint64_t advance_alone(Worker &worker);
  void resume(Worker &worker);

  // Runs all work-groups of an execution that is set up, part by part in the order of their numbers, on this thread
  // with `own` and up to `helpers` others. Where work-groups wait for others, further ones begin, with workers of
  // `more`, up to the number that the device holds, and take turns.
  void run(ThreadPool &pool, Worker &own, Workers &more, unsigned helpers);
  // Return whether a worker whose slice is over must continue later, because another work-group can or must begin.
  bool lets_begin(Worker &worker);
  // Return the progress. For any thread.
  Progress progress();
  // While the host's gate is closed: step all waves from now on.
  void step();
  // Return the workers that have work-groups, in the order of these.
  std::vector<Worker *> groups();

  // Stop the launch soon. For any thread.
  void abort();
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }

private:
  void fill(char *launch);
  void set_sgprs();
  void set_part(char *launch, const GridPart &part);
  const std::string &lanes_of(Triple items);
  const PartMemory *part_to_begin();
  void work(Worker &own, Workers &more);
  Worker *begin(Worker &worker, std::optional<Worker::Part> &part);
  Worker *run_slice(Worker &worker, Workers &more, bool &waits);
  Worker *take(std::unique_lock<std::mutex> &lock, bool shares);
  void end(Worker &worker, std::unique_lock<std::mutex> &lock);
  bool goes_outside(Worker &worker);
  bool sees_more(Worker &worker);
  void mark_stepped(char *launch) const;

  Host &host_;
  Dispatch dispatch_;
  const char *plan_;
  Shape shape_{};
  std::shared_ptr<const RangeTable> ranges_;
  BoundsCheck *bounds_ = nullptr;
  Observer *observer_ = nullptr;
  std::vector<std::shared_ptr<const RangeTable>> kept_; // tables that records may still look into
  std::vector<PartMemory> grid_;
  std::atomic<size_t> begins_{0};                         // the first part of which work-groups may not have begun
  std::list<std::pair<Triple, std::string>> lane_images_; // by the work-items of a work-group
  std::atomic<bool> aborted_{false};
  std::mutex setting_up_; // of `grid_`: others may look at it, or let it end, meanwhile
  alignas(64) char sgprs_[layout::SCALARS] = {};
  std::mutex mutex_;
  std::deque<Worker *> ready_;                   // whose slice is over, and whose turn it is next
  std::condition_variable changed_;              // one is ready, or all have ended
  std::list<std::optional<Worker::Part>> parts_; // of workers beyond those of threads
  std::vector<Worker *> workers_;                // that have work-groups
  uint64_t resident_ = 0, together_ = 0, prepared_ = 0, unfinished_ = 0, patience_ = 0;
  uint64_t scratch_size_ = 0; // of all workers
  uint64_t idle_ = 0;         // turns since a wave ran
  std::chrono::steady_clock::time_point moved_;
};

// Time without progress after which a cooperative launch counts as deadlocked.
constexpr auto kPatience = std::chrono::seconds(5);
// Largest cooperative launch: the runtimes refuse launches that are too large for the program's own kernel.
constexpr uint32_t kResidentGroups = 1024;

} // namespace luthier
