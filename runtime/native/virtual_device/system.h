// The GPUs of the virtual device in this process: made when the driver is opened, and never destroyed (queues run until
// the process ends).
#pragma once

#include <map>

#include "queue.h"

namespace luthier {

class System {
public:
  // Return the system of this process, connected to the service at first use. Throws `Failure`. A forked child has none
  // until `open`.
  static System &open();
  static System *current();

  System();

  Service service;
  Memory memory;
  Events events;
  Debugging debugging;
  Plans plans;
  ThreadPool pool;
  LongLaunches long_launches;
  HotCode hot_code;
  QueueOrder order;
  CheckedLaunches checked;
  SampledLaunches sampled;
  Room room;

  const std::vector<Gpu> &gpus() const { return service.setup().gpus; }
  // Node 0 is the host, then come the GPUs.
  unsigned nodes() const { return gpus().size() + 1; }
  std::vector<uint32_t> all_gpus() const;

  struct MemoryFault {
    unsigned node;
    uint64_t address;
  };
  // Return the fault that memory events report.
  std::optional<MemoryFault> fault() const;
  // Call a function at each memory fault.
  void on_fault(std::function<void(const MemoryFault &)> listener);

  // Queues by number, from 1 on. `size` is in bytes.
  uint64_t add(std::unique_ptr<Queue> queue);
  // Return null if there is no such queue.
  Queue *queue(uint64_t id);
  bool remove(uint64_t id);

private:
  void report(unsigned node, uint64_t address);

  mutable std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Queue>> queues_;
  uint64_t next_queue_ = 1;
  std::optional<MemoryFault> fault_;
  std::vector<std::function<void(const MemoryFault &)>> fault_listeners_;
};

} // namespace luthier
