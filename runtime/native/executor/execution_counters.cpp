#include "execution_counters.h"

#include "worker.h"

namespace luthier {

ExecutionCounters &ExecutionCounters::get() {
  static auto *counters = new ExecutionCounters; // threads may end after static objects
  return *counters;
}

void ExecutionCounters::enter(Worker &worker) {
  std::lock_guard lock(mutex_);
  workers_.insert(&worker);
}

void ExecutionCounters::leave(Worker &worker) {
  std::lock_guard lock(mutex_);
  workers_.erase(&worker);
  worker.add_to(gone_);
}

Tally ExecutionCounters::take() {
  std::lock_guard lock(mutex_);
  Tally tally = gone_;
  for (const Worker *worker : workers_)
    worker->add_to(tally);
  return tally;
}

} // namespace luthier
