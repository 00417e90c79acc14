#include "execution_counters.h"

#include "worker.h"

namespace luthier {

namespace {

ExecutionCounters *&instance() {
  static auto *counters = new ExecutionCounters; // threads may end after static objects
  return counters;
}

} // namespace

ExecutionCounters &ExecutionCounters::get() { return *instance(); }

// NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): the old one may be locked for ever, so it stays
void ExecutionCounters::forget() { instance() = new ExecutionCounters; }

void ExecutionCounters::enter(Worker &worker) {
  std::lock_guard lock(mutex_);
  workers_.insert(&worker);
}

void ExecutionCounters::leave(Worker &worker, bool keep) {
  std::lock_guard lock(mutex_);
  if (workers_.erase(&worker) && keep)
    worker.add_to(gone_);
}

Tally ExecutionCounters::take() {
  std::lock_guard lock(mutex_);
  Tally tally = gone_;
  for (const Worker *worker : workers_)
    worker->add_to(tally);
  return tally;
}

void ExecutionCounters::move(Worker &worker, bool keep, Tally &tally) {
  std::lock_guard lock(mutex_);
  worker.move_counts(tally, keep ? &gone_ : nullptr);
}

Tally ExecutionCounters::take_frequent(uint64_t least) {
  std::lock_guard lock(mutex_);
  Tally tally;
  for (const Worker *worker : workers_)
    worker->add_to(tally, least);
  return tally;
}

void ExecutionCounters::take_runs() {
  std::lock_guard lock(mutex_);
  for (Worker *worker : workers_)
    worker->take_runs();
}

} // namespace luthier
