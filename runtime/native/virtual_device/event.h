// Events that the device raises and threads wait for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace luthier {

inline constexpr unsigned kMaxEvents = 4096;
inline constexpr uint64_t kNoMail = ~0ull;

class Events {
public:
  // `mailboxes`: a word for each event, which the device writes before it interrupts.
  explicit Events(uint64_t *mailboxes);

  // Return the number of a new event, 0 if there are too many.
  unsigned create(bool manual, bool raised);
  bool destroy(unsigned id);
  bool raise(unsigned id);
  bool lower(unsigned id);
  // Move the mailboxes; the events made so far keep the contents of theirs.
  void move(uint64_t *mailboxes);
  // Handle an interrupt: raise every event whose mailbox is not empty.
  void interrupt();
  uint64_t *mailbox(unsigned id) { return mailboxes_ + id; }
  bool is_mailbox(const void *place);

  // An event that a thread waits for.
  struct Awaited {
    unsigned id;
    // The number of raises, from 1 on, that the waiter has seen; then the number that there have been. If they differ,
    // the wait ends at once. 0: not asked.
    uint64_t age = 0;
  };
  // Wait for one event, or for all; -1: without limit. Return false when the time is over. May return too early, as if
  // an event were raised. All threads that wait for an event when it is raised return, as in the kernel's driver
  // (kfd_events.c, set_event); an event that is not manual is lowered by the first.
  bool wait(std::vector<Awaited> &awaited, bool all, int64_t milliseconds);

private:
  struct Event {
    bool used = false, manual = false, raised = false;
    uint64_t raises = 0; // how often, and each time that it was destroyed
    uint64_t before = 0; // what that was when it was created

    uint64_t age() const { return raises - before + 1; }

    void raise() {
      raised = true;
      ++raises;
    }
  };
  void collect();

  std::mutex mutex_;
  std::condition_variable condition_;
  std::vector<Event> events_{1};
  std::vector<unsigned> unused_;
  uint64_t *mailboxes_;
};

} // namespace luthier
