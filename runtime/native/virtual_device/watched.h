// Waits and hazards of one launch: the WATCH that its workers share, and what they found.
#pragma once

#include <atomic>
#include <vector>

#include "service.h"

namespace luthier {

class Watched {
public:
  // Begin with the WATCH of the plan.
  Watched(Service &service, const char *plan);
  Watched(const Watched &) = delete;

  const char *watch() const { return watch_; }
  // Throws `Failure`.
  void tell(uint64_t launch);

private:
  static uint64_t follow(const char *watch, uint32_t state, uint32_t record, layout::Transition *made);
  // Print how many findings had no room.
  void warn_of(const char *what, uint64_t count, uint64_t capacity) const;

  alignas(8) char watch_[layout::watch::kSize]; // first: `follow` finds the rest by it
  Service &service_;
  const char *plan_;
  std::atomic<bool> lost_{false}; // an answer of the service is lost
  std::vector<char> found_, met_;
};

} // namespace luthier
