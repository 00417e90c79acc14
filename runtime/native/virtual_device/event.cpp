#include "event.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace luthier {

// In milliseconds. ROCr checks its signals and then waits for their events. If an event is raised in between and
// another thread consumes it (ROCr's own, which ends a queue, waits for what it has raised), only another check helps.
static constexpr int64_t kLongestSleep = 100;

// More raises than any event has.
static constexpr uint64_t kRaisedBefore = ~0ull;

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
  events_[id] = {true, manual, raised, events_[id].raises, events_[id].raises};
  mailboxes_[id] = kNoMail;
  return id;
}

bool Events::destroy(unsigned id) {
  std::lock_guard lock(mutex_);
  if (id == 0 || id >= events_.size() || !events_[id].used)
    return false;
  events_[id] = {false, false, false, events_[id].raises + 1, 0};
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

bool Events::is_mailbox(const void *place) {
  std::lock_guard lock(mutex_);
  return place >= mailboxes_ && place < mailboxes_ + kMaxEvents;
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

bool Events::wait(std::vector<Awaited> &awaited, bool all, int64_t milliseconds) {
  std::unique_lock lock(mutex_);
  const auto exists = [&](const Awaited &event) { return event.id < events_.size(); };
  std::vector<uint64_t> raises;
  for (const Awaited &event : awaited) {
    const bool is_known = exists(event);
    const bool was_raised = is_known && event.age && event.age != events_[event.id].age();
    raises.push_back(!is_known ? 0 : was_raised ? kRaisedBefore : events_[event.id].raises);
  }
  const auto is_raised = [&](size_t position) {
    const Awaited &event = awaited[position];
    return exists(event) && (events_[event.id].raised || events_[event.id].raises != raises[position]);
  };
  const auto ready = [&] {
    for (size_t position = 0; position < awaited.size(); ++position)
      if (is_raised(position) != all)
        return !all;
    return all;
  };
  const bool longer = milliseconds < 0 || milliseconds > kLongestSleep;
  if (!condition_.wait_for(lock, std::chrono::milliseconds(longer ? kLongestSleep : milliseconds), ready))
    return longer;
  for (size_t position = 0; position < awaited.size(); ++position)
    if (Awaited &event = awaited[position]; event.age && is_raised(position))
      event.age = events_[event.id].age();
  for (const Awaited &event : awaited)
    if (exists(event) && !events_[event.id].manual)
      events_[event.id].raised = false;
  return true;
}

} // namespace luthier
