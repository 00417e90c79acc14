// Order of what the queues of this process do: launches and copies that nothing orders race where they meet in memory.
//
// What is not known for sure counts as order; that something was over when something else began is none. Operations of
// one queue are in order. A queue that has waited for a signal is behind what was done before that signal was changed.
// So is what the program submits when it has looked at the signal; what it has submitted before is not, however late
// that begins. Signals that the program may look at unseen, as those of ROCr itself, count as looked at when they are
// changed. A launch that looks at what others store meanwhile is behind those whose stores it may have seen, one that
// writes where the host may look before everything.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "launch_trace.h"
#include "service.h"

namespace luthier {

// By queue: how many of its operations have happened before.
using VectorClock = std::vector<uint64_t>;

// A call of a HIP function that copies.
struct CopyCall {
  CopiedBytes bytes;
  const char *function;
  const void *site;
};

class QueueOrder {
public:
  QueueOrder(Service &service, const Memory &memory) : service_(service), memory_(memory) {}

  // A queue of the device.
  class Member {
    friend QueueOrder;
    // What was submitted up to a place in the queue, and what the host may have seen before.
    struct Submitted {
      uint64_t end;
      VectorClock seen;
    };
    size_t number = 0;
    uint64_t operations = 0; // begun
    bool running = false;    // works in memory
    VectorClock before;      // what is done before the queue's next operation begins
    std::function<uint64_t()> submitted, taken;
    std::deque<Submitted> submissions;
  };

  // Return a new queue's place among the others; null where nobody asks for races. `submitted` returns up to which
  // place in the queue the program has submitted something, `taken` up to which all is done.
  Member *join(std::function<uint64_t()> submitted, std::function<uint64_t()> taken);
  void leave(Member *member);

  // An operation begins, that is at a place in the queue: one that waits or tells, or one that works in memory and is
  // said to end.
  void begin(Member *member, uint64_t place, bool works = false);
  // The queue has seen a signal, or another value in memory, that it waited for; null: there was nothing to wait for.
  void waited(Member *member, const void *place);
  // A signal is about to be changed, or other memory by which the host or a queue may know that an operation is done.
  void publish(Member *member, const void *place);

  // Operations have ended: a launch whose accesses are known, a copy, a launch whose accesses are not known, with the
  // first words of its arguments.
  void end(Member *member, std::shared_ptr<const AccessChecks> checks, uint64_t launch);
  void end(Member *member, const CopiedBytes &copy);
  void end_unknown(Member *member, std::span<const uint64_t> arguments);

  // The program calls a function that copies.
  void calls(const CopyCall &call);

  // The program has a new signal, of which all is told that it does with it; it destroys it; from now on it, or another
  // process, may look at its value unseen.
  void add_signal(uint64_t handle);
  void remove_signal(uint64_t handle);
  void open_signal(uint64_t handle);
  // The program has got a signal's value, or is about to change it.
  void looked_at(uint64_t handle, int64_t value);
  void changes(uint64_t handle);
  // The program submits a copy that is to wait for it. ROCr looks at it first, and leaves out waits that are over.
  void copy_waits_for(uint64_t handle);

private:
  // What is done when a signal has its value, and when it had the one before that a queue has changed.
  struct Known {
    VectorClock clock, before;
    int64_t value_before = 0;
    bool looked_at = false; // when it is changed
  };
  using Signals = std::map<uint64_t, Known>; // by handle
  struct Done {
    size_t queue = 0;
    uint64_t number = 0;                // among the queue's operations, from 1 on
    VectorClock before, after;          // what is before its accesses, and before what comes after it
    std::unique_ptr<LaunchTrace> trace; // of a launch
    CopiedBytes copy;
    bool unknown = false;
    size_t bytes() const { return trace ? trace->bytes() : 0; }
  };
  // Two operations that race.
  struct Meeting {
    std::vector<wire::Sighting> races;
    CopiedBytes copy;
  };

  Signals::value_type *signal_at(const void *place);
  void see(const VectorClock &clock);
  std::optional<CopiedBytes> copied_by(std::span<const uint64_t> arguments);
  VectorClock now() const;
  void hear(Member &member, const std::function<bool(const Done &)> &hears_of);
  void compare(const Done &done, std::vector<Meeting> &found) const;
  void keep(Member &member, std::unique_ptr<Done> done, bool tells);
  void forget();
  bool is_over(const Done &done) const;
  void tell(const std::vector<Meeting> &found);
  void tell_copy(const wire::Sighting &race, const CopiedBytes &copy);

  Service &service_;
  const Memory &memory_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Member>> members_;
  VectorClock seen_;  // by the host, perhaps
  VectorClock ended_; // all that has
  Signals signals_;
  std::list<std::unique_ptr<Done>> done_;
  size_t bytes_ = 0;
  std::deque<CopyCall> calls_;
};

} // namespace luthier
