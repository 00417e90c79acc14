// Counters of how often instructions were executed, over all threads of the process.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace luthier {

class Worker;

struct Executed {
  uint64_t count = 0, lanes = 0;
};

// By the numbers of the code and the record.
using Tally = std::map<uint64_t, std::map<uint64_t, Executed>>;

// All workers, and the counts of former workers if they are wanted.
class ExecutionCounters {
public:
  static ExecutionCounters &get();
  // Begin again in a child process, which has none of its parent's threads; one of these may have held the lock.
  static void forget();
  void enter(Worker &worker);
  // `keep`: keep the counts of the worker.
  void leave(Worker &worker, bool keep);
  // Return the counts of all workers, and the kept counts of former ones.
  Tally take();
  // Add the counts of the code that a worker ran last to `tally`, and reset them. With `keep`, `take` still returns
  // them.
  void move(Worker &worker, bool keep, Tally &tally);
  // Return the counts of records that a worker has executed at least `least` times.
  Tally take_frequent(uint64_t least);
  // Make all workers use the functions of runs that exist now.
  void take_runs();

private:
  std::mutex mutex_;
  std::set<Worker *> workers_;
  Tally gone_;
};

} // namespace luthier
