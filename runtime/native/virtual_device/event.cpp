#include "event.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace luthier {

// In milliseconds. ROCr looks at its signals and then waits for their events. If one is raised between the two and
// another thread comes back from that (ROCr's own, that ends a queue, waits for what it has raised), only looking again
// helps.
static constexpr int64_t kLongestSleep = 100;

Events::Events(uint64_t *mailboxes) : mailboxes_(mailboxes) { std::fill_n(mailboxes, kMaxEvents, kNoMail); }

unsigned Events::create(bool manual, bool raised) {
  std::lock_guard lock(mutex_);
  unsigned id = events_.size();
  if (!unused_.empty()) {
    id = unused_.back();
    unused_.pop_back();
  } else if (id < kMaxEvents) {
    events_.emplace_back();
  } else {
    return 0;
  }
  events_[id] = {true, manual, raised, events_[id].raises};
  mailboxes_[id] = kNoMail;
  return id;
}

bool Events::destroy(unsigned id) {
  std::lock_guard lock(mutex_);
  if (id == 0 || id >= events_.size() || !events_[id].used)
    return false;
  events_[id] = {false, false, false, events_[id].raises + 1};
  unused_.push_back(id);
  condition_.notify_all();
  return true;
}

bool Events::raise(unsigned id) {
  std::lock_guard lock(mutex_);
  if (id == 0 || id >= events_.size() || !events_[id].used)
    return false;
  events_[id].raise();
  condition_.notify_all();
  return true;
}

bool Events::lower(unsigned id) {
  std::lock_guard lock(mutex_);
  if (id == 0 || id >= events_.size() || !events_[id].used)
    return false;
  events_[id].raised = false;
  return true;
}

void Events::move(uint64_t *mailboxes) {
  std::lock_guard lock(mutex_);
  std::copy_n(mailboxes_, kMaxEvents, mailboxes);
  mailboxes_ = mailboxes;
}

void Events::interrupt() {
  std::lock_guard lock(mutex_);
  collect();
  condition_.notify_all();
}

void Events::collect() {
  for (unsigned id = 1; id < events_.size(); ++id)
    if (std::atomic_ref(mailboxes_[id]).load(std::memory_order_acquire) != kNoMail) {
      std::atomic_ref(mailboxes_[id]).store(kNoMail, std::memory_order_release);
      events_[id].raise();
    }
}

bool Events::wait(const std::vector<unsigned> &ids, bool all, int64_t milliseconds) {
  std::unique_lock lock(mutex_);
  std::vector<uint64_t> raises;
  for (unsigned id : ids)
    raises.push_back(id < events_.size() ? events_[id].raises : 0);
  const auto is_raised = [&](size_t position) {
    const unsigned id = ids[position];
    return id < events_.size() && (events_[id].raised || events_[id].raises != raises[position]);
  };
  const auto ready = [&] {
    for (size_t position = 0; position < ids.size(); ++position)
      if (is_raised(position) != all)
        return !all;
    return all;
  };
  const bool longer = milliseconds < 0 || milliseconds > kLongestSleep;
  if (!condition_.wait_for(lock, std::chrono::milliseconds(longer ? kLongestSleep : milliseconds), ready))
    return longer;
  for (unsigned id : ids)
    if (id < events_.size() && !events_[id].manual)
      events_[id].raised = false;
  return true;
}

}  // namespace luthier
