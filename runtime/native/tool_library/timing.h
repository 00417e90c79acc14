// When launches begin and end on the device, by the time stamps that it leaves in signals.
#pragma once

#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ledger.h"
#include "runtime.h"

namespace luthier {

// A launch without a completion signal gets one of ours. One that the program waits for is left as it is: its time
// stamps are read when it is done, or else before the program uses it again. Such a use that is not seen here makes the
// times those of something else, or none.
class Timing {
public:
  explicit Timing(Runtime &runtime);

  // Before a launch is written: its record gets the times when they are known.
  void watch(unsigned gpu, hsa_kernel_dispatch_packet_t &packet, LedgerRecord &record);
  // The program is about to use a signal for something else, or to destroy it.
  void reused(hsa_signal_t signal);
  // The runtime or the process ends: what has not ended never will, as far as is known here.
  void finish();

private:
  struct Pending {
    LedgerRecord *record;
    hsa_agent_t agent;
    hsa_signal_t signal;
    uint64_t written; // in the runtime's ticks
    bool ours;
  };
  using Place = std::list<Pending>::iterator;

  uint64_t now() const;
  // Takes what has ended of the launches watched longest.
  void collect(size_t most);
  void end(Place place, bool done);

  Runtime &runtime_;
  std::mutex mutex_;
  bool finished_ = false;
  std::list<Pending> pending_;
  std::unordered_map<uint64_t, Place> of_program_; // by the program's signals
  std::vector<hsa_signal_t> free_;
  uint64_t ticks_ = 0, nanoseconds_ = 0; // the same moment, the latter since 1970
  double period_ = 1;                    // nanoseconds of a tick
};

} // namespace luthier
