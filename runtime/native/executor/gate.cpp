#include "gate.h"

namespace luthier {

void Gate::enter() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !closed_; });
  ++inside_;
}

void Gate::leave() {
  std::lock_guard lock(mutex_);
  --inside_;
  changed_.notify_all();
}

bool Gate::close() {
  std::unique_lock lock(mutex_);
  closed_ = !ended_;
  changed_.wait(lock, [this] { return !inside_ || !closed_; });
  return closed_;
}

void Gate::open() {
  std::lock_guard lock(mutex_);
  closed_ = false;
  changed_.notify_all();
}

void Gate::end() {
  std::lock_guard lock(mutex_);
  ended_ = true;
  closed_ = false;
  changed_.notify_all();
}

} // namespace luthier
