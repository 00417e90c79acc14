// What the kernel driver keeps for ROCm's debugger about this process: which exceptions are pending, and where.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace luthier {

// Exceptions, as bits (enum kfd_dbg_trap_exception_code of include/uapi/linux/kfd_ioctl.h).
namespace exceptions {
constexpr uint64_t bit(unsigned code) { return uint64_t{1} << (code - 1); }
constexpr uint64_t kTrap = bit(2), kIllegalInstruction = bit(4), kMemoryViolation = bit(5), kApertureViolation = bit(6);
constexpr uint64_t kDimensions = bit(16), kGroupMemory = bit(17), kCode = bit(18), kPacket = bit(20);
constexpr uint64_t kGroupSize = bit(21), kRegisters = bit(22), kNewQueue = bit(31), kRuntime = bit(48);
} // namespace exceptions

class Debugging {
public:
  ~Debugging();
  // The runtime lets debuggers attach from now on, before it makes queues.
  void enable() { enabled_.store(true, std::memory_order_relaxed); }
  bool is_enabled() const { return enabled_.load(std::memory_order_relaxed); }
  // Begin a session: write to that file whenever one of the exceptions `reported` is raised. Return false if there is
  // one.
  bool attach(int notifier, uint64_t reported);
  void detach();
  bool is_attached() const { return attached_.load(std::memory_order_relaxed); }
  void report(uint64_t exceptions);

  // New waves halt before their first instruction.
  void halt_new_waves(bool halts) { halts_.store(halts, std::memory_order_relaxed); }
  bool halts_new_waves() const { return halts_.load(std::memory_order_relaxed); }

  // Queues by number; 0: the process itself.
  void raise(uint64_t queue, uint64_t exceptions);
  // Return the pending exceptions of a queue, and clear some.
  uint64_t take(uint64_t queue, uint64_t cleared);
  void forget(uint64_t queue);
  struct Pending {
    uint64_t queue, exceptions;
  };
  // Return the exceptions of something that has a reported one, and clear some; nothing if there is none.
  std::optional<Pending> next(uint64_t cleared);

private:
  std::atomic<bool> enabled_{false}, attached_{false}, halts_{false};
  std::mutex mutex_;
  int notifier_ = -1;
  uint64_t reported_ = 0;
  std::map<uint64_t, uint64_t> pending_; // exceptions by queue
};

} // namespace luthier
