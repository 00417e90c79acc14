// The host's stacks of launches.
#pragma once

#include <unordered_map>

#include "host_stack.h"
#include "kernels.h"

namespace luthier {

class LaunchStacks {
public:
  LaunchStacks(Client &client, Faults &faults) : client_(client), faults_(faults) {}

  // Return the number of the stack of the launch that this thread is making; 0 if it is not known.
  uint32_t here();

private:
  void tell(const HostStack &stack);

  Client &client_;
  Faults &faults_;
  std::mutex mutex_;
  std::unordered_map<const void *, uint64_t> frames_; // that the service knows -> number
};

// Return the names of the program's ranges (roctx) by number, and those that this thread is in, outermost first.
const std::string &range_name(uint32_t number);
std::span<const uint32_t> ranges_here();

} // namespace luthier
