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

// By the code's number and the record's.
using Tally = std::map<uint64_t, std::map<uint64_t, Executed>>;

// All workers there are, and what those executed that are no more, where that is wanted.
class ExecutionCounters {
public:
  static ExecutionCounters &get();
  // Begin anew in a child process, which has none of its parent's threads; one of these may have had the lock.
  static void forget();
  void enter(Worker &worker);
  // `keep`: what it has executed is wanted later, too.
  void leave(Worker &worker, bool keep);
  // What was executed; of workers that are gone, as far as it was kept.
  Tally take();
  // The same of records that some worker that there is has executed at least so often.
  Tally take_frequent(uint64_t least);
  // Let all workers take the functions of runs that there are by now.
  void take_runs();

private:
  std::mutex mutex_;
  std::set<Worker *> workers_;
  Tally gone_;
};

} // namespace luthier
