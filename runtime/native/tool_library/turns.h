// Runs launches one after the other, for tools that want each reported.
#pragma once

#include <array>
#include <condition_variable>
#include <memory>

#include "kernels.h"
#include "launch_memory.h"

namespace luthier {

// One device's.
class Turn {
public:
  Turn(Runtime &runtime, Client &client, Faults &faults, unsigned gpu);

  // Wait until the launch before has ended and its end has been reported.
  void begin(uint64_t row, uint64_t number);
  using Barriers = std::array<hsa_barrier_and_packet_t, 2>;

  // Capture the launch. Return the packets to write before it: it waits until all earlier packets of the queue are
  // done, and its memory has been read.
  Barriers capture(const wire::LaunchMemory &launch, const LaunchRoots &roots, uint64_t most);
  // Return the packets to write after a launch that is captured: whatever waits for its completion waits until its
  // memory has been read again.
  Barriers complete(hsa_signal_t completion);
  // Return the packet to write last, which reports the end of the launch.
  hsa_barrier_and_packet_t watch();
  // The launch does not take place, or its end cannot be reported.
  void give_up();
  // Wait a short time for the end of the last launch.
  void finish();

private:
  // A launch that is captured.
  struct Captured {
    wire::LaunchMemory launch;
    LaunchRoots roots;
    uint64_t most;
    std::unique_ptr<LaunchMemory> memory; // null if it could not be read
  };

  static bool on_ready(hsa_signal_value_t, void *self);
  static bool on_done(hsa_signal_value_t, void *self);
  static bool on_end(hsa_signal_value_t, void *self);
  hsa_signal_t make_signal();
  void handle(hsa_signal_t signal, hsa_amd_signal_handler handler);
  void read_before();
  void read_after();
  void tell(const std::function<void()> &read);
  std::string device_name();

  Runtime &runtime_;
  Client &client_;
  Faults &faults_;
  const unsigned gpu_;
  hsa_signal_t signal_{};
  hsa_signal_t ready_{}, read_{}, done_{}, read_again_{}; // made when a launch is captured
  Captured captured_{};                                   // the last one
  std::mutex mutex_;
  std::condition_variable ended_;
  bool busy_ = false;
  uint64_t row_ = 0, number_ = 0;
};

} // namespace luthier
