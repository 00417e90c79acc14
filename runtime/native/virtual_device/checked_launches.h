// The launches that checks observe: as the user selects them, and within a budget of time. They are counted in memory
// of the service, which has the counts even if this process is killed.
#pragma once

#include <chrono>
#include <map>
#include <mutex>

#include "hsa_layouts.h"
#include "launch_choice.h"
#include "service.h"

namespace luthier {

class CheckedLaunches {
public:
  // Throws `Failure`.
  explicit CheckedLaunches(Service &service);

  struct Choice {
    const char *plan;        // layout::plan with which it runs
    uint64_t number;         // among the launches of its kernel; 0 if nothing is checked
    bool of_program = false; // it is counted
    bool is_observed = false;
  };
  // Choose how the next launch of a kernel runs, by its plan.
  Choice choose(const char *plan, const hsa::DispatchPacket &packet);
  // Count a launch that has ended.
  void ended(const Choice &choice, std::chrono::nanoseconds duration) const;
  // Count an allocation of the program.
  void allocated(uint64_t size) const;

private:
  struct Kernel {
    uint64_t launches = 0;
    LaunchChoice choice, sizes;
  };
  bool is_in_budget(Kernel &kernel, const hsa::DispatchPacket &packet, uint64_t number);

  wire::CheckedLaunches wanted_{};
  wire::CheckTally *tally_ = nullptr; // null if nothing is checked
  std::mutex mutex_;
  std::map<const char *, Kernel> kernels_; // by plan
};

} // namespace luthier
