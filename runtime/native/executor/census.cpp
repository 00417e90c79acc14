#include "census.h"

#include "worker.h"

namespace luthier {

Census &Census::get() {
  static auto *census = new Census;  // threads may end after static objects
  return *census;
}

void Census::enter(Worker &worker) {
  std::lock_guard lock(mutex_);
  workers_.insert(&worker);
}

void Census::leave(Worker &worker) {
  std::lock_guard lock(mutex_);
  workers_.erase(&worker);
  worker.add_to(gone_);
}

Tally Census::take() {
  std::lock_guard lock(mutex_);
  Tally tally = gone_;
  for (const Worker *worker : workers_)
    worker->add_to(tally);
  return tally;
}

}  // namespace luthier
