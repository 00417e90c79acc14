// When launches begin and end on the device, from the time stamps that it writes to signals.
#pragma once

#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ledger.h"
#include "runtime.h"

namespace luthier {

// A launch without a completion signal gets one. A signal of the program is left in place: its time stamps are read
// when the launch is done, or before the program uses the signal again. If such a use is not seen here, the times are
// those of something else, or missing.
class Timing {
public:
  explicit Timing(Runtime &runtime);

  // Watch a launch before it is written; its record gets the times when they are known.
  void watch(unsigned gpu, hsa_kernel_dispatch_packet_t &packet, LedgerRecord &record);
  // The program is about to reuse a signal, or to destroy it.
  void reused(hsa_signal_t signal);
  // The runtime or the process ends: the ends of launches that have not ended will not be seen.
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
  // Remove the launches that have ended among those watched longest.
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
