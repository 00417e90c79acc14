#include "event.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace luthier {

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
  events_[id] = {true, manual, raised};
  mailboxes_[id] = kNoMail;
  return id;
}

bool Events::destroy(unsigned id) {
  std::lock_guard lock(mutex_);
  if (id == 0 || id >= events_.size() || !events_[id].used)
    return false;
  events_[id] = {};
  unused_.push_back(id);
  condition_.notify_all();
  return true;
}

bool Events::raise(unsigned id) {
  std::lock_guard lock(mutex_);
  if (id == 0 || id >= events_.size() || !events_[id].used)
    return false;
  events_[id].raised = true;
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
      events_[id].raised = true;
    }
}

bool Events::wait(const std::vector<unsigned> &ids, bool all, int64_t milliseconds) {
  std::unique_lock lock(mutex_);
  const auto is_raised = [&](unsigned id) { return id < events_.size() && events_[id].raised; };
  const auto ready = [&] {
    return all ? std::all_of(ids.begin(), ids.end(), is_raised) : std::any_of(ids.begin(), ids.end(), is_raised);
  };
  if (milliseconds < 0)
    condition_.wait(lock, ready);
  else if (!condition_.wait_for(lock, std::chrono::milliseconds(milliseconds), ready))
    return false;
  for (unsigned id : ids)
    if (is_raised(id) && !events_[id].manual)
      events_[id].raised = false;
  return true;
}

}  // namespace luthier
