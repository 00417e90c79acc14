// One kernel dispatch: its initial state, the workers that run it, what stopped it.
#pragma once

#include <chrono>
#include <deque>
#include <hsa/hsa.h>
#include <optional>

#include "crew.h"
#include "memory.h"
#include "worker.h"

namespace luthier {

// Why a dispatch ended early, as the command processor reports it: bits of amd_queue_t::queue_inactive_signal.
enum class QueueError : uint64_t {
  kDimensions = 2,
  kGroupMemory = 4,
  kCode = 8,
  kPacket = 32,
  kGroupSize = 64,
  kRegisters = 128,
  kAperture = 0x20000000,
  kInstruction = 0x40000000,
  kTrap = 0x80000000,
};

struct Fault {
  std::string text;
  QueueError error = QueueError::kTrap;
  bool is_memory = false;  // then it is a memory access fault at `address`, which the driver reports
  uint64_t address = 0;
};

struct Dispatch {
  const hsa_kernel_dispatch_packet_t *packet;
  const char *plan;  // layout::plan
  uint64_t queue;    // amd_queue_t
  uint64_t id;       // of the packet
  bool cooperative;  // all work-groups run at once
  unsigned node;
};

// What a launch needs besides: kept by a queue.
class Resources {
public:
  Resources(Service &service, Memory &memory, Crew &crew) : service(service), memory(memory), crew(crew), own(service) {}
  ~Resources();
  // Scratch of that size which the node may access.
  uint64_t scratch(unsigned node, uint64_t size);

  Service &service;
  Memory &memory;
  Crew &crew;
  Worker own;
  std::vector<std::unique_ptr<Worker>> resident;  // more, for cooperative launches
  std::function<void()> interrupt;                // a kernel has sent one

private:
  uint64_t scratch_ = 0, scratch_size_ = 0;
};

class Launch {
public:
  Launch(Resources &resources, const Dispatch &dispatch);
  // Runs it to its end; what went wrong, if anything.
  std::optional<Fault> run();
  // From another thread: let it end soon, with no fault.
  void abort() { __atomic_store_n(reinterpret_cast<uint32_t *>(launch_ + layout::launch::abort.offset), 1, __ATOMIC_RELAXED); }

private:
  struct Triple {
    uint32_t x, y, z;
  };
  std::optional<Fault> check() const;
  void fill();
  void run_part(Triple first, Triple groups, Triple items);
  void set_items(Triple items);
  void work(Worker &worker);
  uint64_t advance(Worker &worker);
  void work_together();
  void prepare(Worker &worker, unsigned number);
  bool sees_more(Worker &worker);
  void fail(Worker &worker, uint64_t reason);
  void fail(Fault fault);

  Resources &resources_;
  Dispatch dispatch_;
  const char *plan_;
  Triple block_, grid_;  // work-items
  Shape shape_{};
  std::shared_ptr<const RangeTable> ranges_;
  std::vector<std::shared_ptr<const RangeTable>> kept_;  // tables that records may still look into
  alignas(64) char launch_[layout::launch::kSize] = {};
  alignas(64) char sgprs_[512] = {};
  std::string lanes_;
  std::mutex mutex_;
  std::optional<Fault> fault_;
  std::deque<Worker *> ready_;  // of a cooperative launch: whose turn it is next
  unsigned unfinished_ = 0;
  std::chrono::steady_clock::time_point moved_;
};

}  // namespace luthier
