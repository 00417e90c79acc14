// Queues. Each has a thread, which processes packets as a command processor or a copy engine does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <thread>

#include "debugged_waves.h"
#include "event.h"
#include "hot_code.h"
#include "launch.h"
#include "long_launches.h"
#include "plans.h"
#include "queue_order.h"

namespace luthier {

// Time stamps of the device: hundredths of a microsecond of the system clock.
uint64_t device_clock();

// The state that queues share.
struct Room {
  Service &service;
  Memory &memory;
  Events &events;
  Plans &plans;
  ThreadPool &pool;
  LongLaunches &long_launches;
  HotCode &hot_code;
  QueueOrder &order;
  CheckedLaunches &checked;
  SampledLaunches &sampled;
  Debugging &debugging;
  // A memory access fault of a node at an address, as the driver reports it.
  std::function<void(unsigned node, uint64_t address)> memory_fault;
};

class Queue {
public:
  // `write`, `read`: indices into the ring, which begin at 0. Doorbells have no effect: the thread polls the write
  // index.
  Queue(Room &room, unsigned node, char *ring, uint64_t size, uint64_t *write, uint64_t *read)
      : room_(room), node_(node), ring_(ring), size_(size), write_(write), read_(read) {}
  virtual ~Queue() = default;

  // `id`: the driver's number of it.
  void start(uint64_t id);
  // End the thread, and what it executes.
  void stop();
  // Suspend or resume it.
  void set_active(bool active) { active_.store(active); }
  // For a debugger: suspend it and write its waves to the context save area; read them back and resume it. Throws
  // `Failure`.
  virtual void suspend() { active_.store(false); }
  virtual void resume() { active_.store(true); }

protected:
  // Process the packets that there are; return false if there were none.
  virtual bool process() = 0;
  // Return the place up to which the program has submitted packets, an index like that of QueueOrder::begin.
  virtual uint64_t submitted() const = 0;
  virtual void abort() {}
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }
  // Wait until `done` returns true; return false if the queue must end.
  bool wait_until(const std::function<bool()> &done);

  Room &room_;
  unsigned node_;
  char *ring_;
  uint64_t size_;
  uint64_t *write_, *read_;
  uint64_t id_ = 0;
  QueueOrder::Member *member_ = nullptr; // among all queues

private:
  void run();
  std::atomic<bool> stopping_{false}, active_{true};
  std::thread thread_;
};

// Kernel dispatch, barriers, vendor packets of an AQL queue (HSA specification 2.9).
class AqlQueue : public Queue {
public:
  AqlQueue(Room &room, unsigned node, unsigned gpu, char *ring, uint64_t size, uint64_t *write, uint64_t *read);
  // Kernels of this queue run all their work-groups at once.
  void set_cooperative() { cooperative_ = true; }
  // Its context save area, with the size of the control stack in it.
  void set_save_area(char *area, uint64_t size, uint64_t stack_size);
  void suspend() override;
  void resume() override;

protected:
  bool process() override;
  uint64_t submitted() const override;
  void abort() override;

private:
  struct Outcome;
  void dispatch(const hsa::DispatchPacket &packet, uint64_t id);
  bool barrier(const hsa::BarrierPacket &packet, bool all);
  bool vendor(const char *packet);
  void fail(const Fault &fault, const hsa::DispatchPacket *packet);
  bool tell_runtime(uint64_t exceptions);
  void complete(hsa::SignalHandle signal, uint64_t begin);

  unsigned gpu_;
  uint64_t next_ = 0;
  bool failed_ = false;
  std::atomic<bool> cooperative_{false};
  Resources resources_;
  DebuggedQueue debugged_;
  std::mutex mutex_;
  std::condition_variable released_; // a debugger no longer suspends it
  bool is_suspended_ = false;
  Launch *launch_ = nullptr;
};

// Widths of the fields of packets that copy a box, in bits: they are in the same words, from bit 0 on or up to bit 31.
struct BoxFields {
  unsigned coordinate, depth, pitch, slice;
};
constexpr BoxFields kBoxFields{14, 11, 19, 28};
constexpr BoxFields kBoxFieldsOfGfx12{16, 14, 16, 32};

// Packets of a copy engine.
class SdmaQueue : public Queue {
public:
  SdmaQueue(Room &room, unsigned node, const BoxFields &box, char *ring, uint64_t size, uint64_t *write, uint64_t *read)
      : Queue(room, node, ring, size, write, read), box_(box) {}

protected:
  bool process() override;
  uint64_t submitted() const override { return __atomic_load_n(write_, __ATOMIC_ACQUIRE); }

private:
  size_t execute(const uint32_t *packet, size_t words);
  bool carry_out(const uint32_t *packet);
  bool poll(const uint32_t *packet);
  char *reach(const char *what, uint64_t address, uint64_t size);
  char *reach_published(const char *what, uint64_t address, uint64_t size);
  RangeTable::Piece reach_piece(const char *what, uint64_t address, uint64_t size);
  char *fail(const char *what, uint64_t address, uint64_t size);
  bool copy(uint64_t to, uint64_t from, uint64_t size);
  bool copy_box(const uint32_t *packet);
  bool fill(uint64_t to, uint32_t value, uint64_t size);
  void publish(const char *place);
  void ended(const char *from, const RangeTable::Piece &to);
  BoxFields box_;
  bool failed_ = false;
  uint64_t next_ = 0;
};

} // namespace luthier
