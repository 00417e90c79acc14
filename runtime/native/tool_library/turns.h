// Launches one after the other, for tools that want each reported.
#pragma once

#include <condition_variable>
#include <memory>

#include "kernels.h"

namespace luthier {

// One device's.
class Turn {
public:
  Turn(Runtime &runtime, Client &client, Faults &faults, unsigned gpu);

  // Wait until the launch before has ended and its end has been reported.
  void begin(uint64_t row, uint64_t number);
  // Return the packet to be written after the launch, which reports its end.
  hsa_barrier_and_packet_t watch();
  // The launch does not take place, or nothing can tell of its end.
  void give_up();
  // Waits for the end of the last launch, not for long.
  void finish();

private:
  static bool on_end(hsa_signal_value_t, void *self);

  Runtime &runtime_;
  Client &client_;
  Faults &faults_;
  const unsigned gpu_;
  hsa_signal_t signal_{};
  std::mutex mutex_;
  std::condition_variable ended_;
  bool busy_ = false;
  uint64_t row_ = 0, number_ = 0;
};

} // namespace luthier
