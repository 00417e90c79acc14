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

// All workers there are, and what those executed that are no more.
class ExecutionCounters {
public:
  static ExecutionCounters &get();
  void enter(Worker &worker);
  void leave(Worker &worker);
  Tally take();

private:
  std::mutex mutex_;
  std::set<Worker *> workers_;
  Tally gone_;
};

} // namespace luthier
