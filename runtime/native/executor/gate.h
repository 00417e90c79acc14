// Where the threads of a launch wait while a debugger looks at its waves.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace luthier {

class Gate {
public:
  // Waves run on this thread from now on; wait until the gate is open.
  void enter();
  // No wave runs on this thread until it enters again.
  void leave();
  // Let the gate close here, between two instructions.
  void pass() {
    if (closed_.load(std::memory_order_acquire)) {
      leave();
      enter();
    }
  }
  // Stop all threads between two instructions, and return when none runs a wave; false if the launch ends.
  bool close();
  void open();
  // Open it, and let nothing close it: the launch ends.
  void end();

private:
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned inside_ = 0;
  bool ended_ = false;
};

// The presence of a thread that runs waves; without a gate, nothing stops it.
class Passage {
public:
  explicit Passage(Gate *gate) : gate_(gate) {
    if (gate_)
      gate_->enter();
  }
  ~Passage() {
    if (gate_)
      gate_->leave();
  }
  Passage(const Passage &) = delete;
  Passage &operator=(const Passage &) = delete;

private:
  Gate *gate_;
};

} // namespace luthier
