// The order of operations of this process's queues: launches and copies that are not ordered race where they access the
// same memory.
//
// Whatever may order two operations counts as order, but not that one had ended when the other one began. Operations of
// one queue are ordered. A queue that has waited for a signal comes after everything before the change of that signal.
// So does what the program submits after it has read the signal, but not what it has submitted before, however late
// that begins. Signals that the program may read unobserved, as those of ROCr itself, count as read when they are
// changed. A launch that reads what others store meanwhile comes after those whose stores it may have seen; a launch
// that writes where the host may read comes before everything later.
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
    // A place in the queue up to which was submitted, and what the host may have seen before.
    struct Submitted {
      uint64_t end;
      VectorClock seen;
    };
    size_t number_ = 0;
    uint64_t operations_ = 0; // begun
    bool running_ = false;    // works in memory
    VectorClock before_;      // what is done before the queue's next operation begins
    std::function<uint64_t()> submitted_, taken_;
    std::deque<Submitted> submissions_;
  };

  // Add a queue; return null if races are not checked. `submitted` returns the place in the queue up to which the
  // program has submitted, `taken` the place up to which all is done.
  Member *join(std::function<uint64_t()> submitted, std::function<uint64_t()> taken);
  void leave(Member *member);

  // An operation at a place in the queue begins: one that waits or signals, or, with `works`, one that accesses memory
  // and whose end is reported.
  void begin(Member *member, uint64_t place, bool works = false);
  // The queue has seen a signal, or another value in memory, for which it waited; null: it did not wait.
  void waited(Member *member, const void *place);
  // A signal, or other memory that may show the host or a queue that an operation is done, is about to be changed.
  void publish(Member *member, const void *place);

  // Operations have ended: a launch whose accesses are known, a copy, a launch whose accesses are not known, with the
  // first words of its arguments.
  void end(Member *member, std::shared_ptr<const AccessChecks> checks, uint64_t launch);
  void end(Member *member, const CopiedBytes &copy);
  void end_unknown(Member *member, std::span<const uint64_t> arguments);

  // The program calls a function that copies.
  void calls(const CopyCall &call);

  // The program has created a signal, whose uses are reported; destroys it; or may, as another process may, read its
  // value unobserved from now on.
  void add_signal(uint64_t handle);
  void remove_signal(uint64_t handle);
  void open_signal(uint64_t handle);
  // The program has read a signal's value, or is about to change it.
  void looked_at(uint64_t handle, int64_t value);
  void changes(uint64_t handle);
  // The program submits a copy that waits for a signal. ROCr reads the signal first, and omits waits that are over.
  void copy_waits_for(uint64_t handle);

private:
  // What is done when a signal has its value, and when it had its previous value, which a queue has changed.
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
  void compare(const Done &done, std::vector<Meeting> &meetings) const;
  void keep(Member &member, std::unique_ptr<Done> done, bool tells);
  void forget();
  bool is_over(const Done &done) const;
  void tell(const std::vector<Meeting> &meetings);
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
