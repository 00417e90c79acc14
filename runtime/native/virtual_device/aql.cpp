#include "queue.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <mutex>

namespace luthier {

namespace {

using hsa::PacketType;
using hsa::value_of;

hsa::Signal *signal_of(hsa::SignalHandle handle) { return reinterpret_cast<hsa::Signal *>(handle); }

// The structure around the read index that the queue was created with.
hsa::Queue *queue_around(uint64_t *read) {
  return reinterpret_cast<hsa::Queue *>(reinterpret_cast<char *>(read) - offsetof(hsa::Queue, read_dispatch_id));
}

} // namespace

AqlQueue::AqlQueue(Room &room, unsigned node, unsigned gpu, char *ring, uint64_t size, uint64_t *write, uint64_t *read)
    : Queue(room, node, ring, size, write, read), gpu_(gpu),
      resources_(room.service, room.memory, room.plans, room.pool, room.order, room.debugging) {
  debugged_.debugging = &room.debugging;
  debugged_.format = SaveFormat::of(room.service.setup().gpus[gpu].target);
  debugged_.packets = size / hsa::kPacketSize;
  resources_.interrupt = [this] { room_.events.interrupt(); };
}

uint64_t AqlQueue::submitted() const {
  const uint64_t write = __atomic_load_n(write_, __ATOMIC_ACQUIRE);
  uint64_t end = __atomic_load_n(read_, __ATOMIC_ACQUIRE);
  const auto is_there = [&](uint64_t id) {
    const auto *header = reinterpret_cast<const uint16_t *>(ring_ + id * hsa::kPacketSize % size_);
    return hsa::type_of(__atomic_load_n(header, __ATOMIC_ACQUIRE)) != PacketType::kInvalid;
  };
  while (end < write && is_there(end))
    ++end;
  return end;
}

void AqlQueue::abort() {
  std::lock_guard lock(mutex_);
  is_suspended_ = false;
  released_.notify_all();
  if (launch_)
    launch_->abort();
}

void AqlQueue::set_save_area(char *area, uint64_t size, uint64_t stack_size) {
  debugged_.area = area;
  debugged_.area_size = size;
  debugged_.stack_size = stack_size;
}

void AqlQueue::suspend() {
  std::lock_guard lock(mutex_);
  if (stopping())
    throw Failure("queue " + std::to_string(id_) + " ends");
  if (!debugged_.format || !debugged_.area)
    throw Failure("queue " + std::to_string(id_) + " has no context save area for its device");
  debugged_.id = id_;
  if (!launch_ || !launch_->suspend(debugged_))
    SaveArea(debugged_.area, debugged_.area_size, debugged_.stack_size).place({}, {});
  is_suspended_ = true; // what throws leaves it as it was
}

void AqlQueue::resume() {
  std::lock_guard lock(mutex_);
  if (launch_)
    launch_->resume();
  is_suspended_ = false;
  released_.notify_all();
}

// The header of a packet decides whether it is ready, not the write index: several producers finish out of order.
bool AqlQueue::process() {
  if (failed_ || next_ >= __atomic_load_n(write_, __ATOMIC_ACQUIRE))
    return false;
  char *packet = ring_ + next_ * hsa::kPacketSize % size_;
  auto *header = reinterpret_cast<uint16_t *>(packet);
  const PacketType type = hsa::type_of(__atomic_load_n(header, __ATOMIC_ACQUIRE));
  bool done = true;
  if (type == PacketType::kInvalid)
    return false;
  room_.order.begin(member_, next_, type == PacketType::kDispatch);
  switch (type) {
  case PacketType::kDispatch:
    dispatch(*reinterpret_cast<hsa::DispatchPacket *>(packet), next_);
    break;
  case PacketType::kBarrierAnd:
  case PacketType::kBarrierOr:
    done = barrier(*reinterpret_cast<hsa::BarrierPacket *>(packet), type == PacketType::kBarrierAnd);
    break;
  case PacketType::kVendor:
    done = vendor(packet);
    break;
  default: {
    Fault fault;
    fault.error = QueueError::kPacket;
    fault.text = "an AQL packet of type " + std::to_string(static_cast<unsigned>(type));
    fail(fault, nullptr);
  }
  }
  if (!done || failed_)
    return false;
  __atomic_store_n(header, static_cast<uint16_t>(PacketType::kInvalid), __ATOMIC_RELEASE);
  __atomic_store_n(read_, ++next_, __ATOMIC_RELEASE);
  return true;
}

namespace {

// While captures are wanted, launches of a process run one at a time, so that nothing else on the devices changes
// memory or counts. A launch that would wait too long runs beside the other: they may wait for each other.
struct Turns {
  std::timed_mutex turn;
  std::atomic<bool> given_up{false}; // another launch gave up waiting for the one that has the turn
  std::atomic<uint64_t> beside{0};   // launches that run without a turn
  std::atomic<uint64_t> begun{0};    // that ever did

  static Turns &get() {
    static Turns turns;
    return turns;
  }
};

// Publishes a launch at `place` during its lifetime, so that other threads may abort or suspend it.
class Published {
public:
  // `begin`: called with the lock before that.
  Published(std::mutex &mutex, Launch *&place, Launch &launch,
            const std::function<void(std::unique_lock<std::mutex> &)> &begin)
      : mutex_(mutex), place_(place) {
    std::unique_lock lock(mutex_);
    begin(lock);
    place_ = &launch;
  }
  ~Published() {
    std::lock_guard lock(mutex_);
    place_ = nullptr;
  }
  Published(const Published &) = delete;
  Published &operator=(const Published &) = delete;

private:
  std::mutex &mutex_;
  Launch *&place_;
};

class Capturing {
public:
  Capturing(Service &service, const RangeTable &memory, wire::CaptureRequest launch, const hsa::DispatchPacket &packet,
            const std::function<bool()> &stopping)
      : service_(service) {
    const uint64_t patience = service.setup().capture_patience;
    if (!patience)
      return;
    turn_ = std::unique_lock(turns_.turn, std::defer_lock);
    for (uint64_t waited = 0; !turn_.try_lock_for(std::chrono::milliseconds(kLook)); waited += kLook)
      if (waited >= patience || turns_.given_up || stopping()) {
        beside_ = true;
        ++turns_.beside;
        ++turns_.begun;
        turns_.given_up = true;
        return;
      }
    turns_.given_up = false;
    disturbing_ = turns_.beside;
    begun_ = turns_.begun;
    launch.packet = bytes_of(std::span(&packet, 1));
    launch.ranges = bytes_of(memory.rows);
    launch.aliases = memory.aliases;
    wanted_ = service.ask(launch);
    if (wanted_)
      before_ = counts_of(ExecutionCounters::get().take());
  }
  ~Capturing() {
    if (beside_)
      --turns_.beside;
  }
  Capturing(const Capturing &) = delete;
  Capturing &operator=(const Capturing &) = delete;

  void ended(bool failed, bool outside) {
    if (wanted_)
      service_.ask(wire::Captured{failed, outside, disturbing_ + turns_.begun - begun_, before_,
                                  counts_of(ExecutionCounters::get().take())});
  }

private:
  static constexpr uint64_t kLook = 10; // milliseconds
  Service &service_;
  Turns &turns_ = Turns::get();
  std::unique_lock<std::timed_mutex> turn_;
  bool wanted_ = false, beside_ = false;
  uint64_t disturbing_ = 0, begun_ = 0;
  std::vector<wire::CodeCounts> before_;
};

} // namespace

void AqlQueue::dispatch(const hsa::DispatchPacket &packet, uint64_t id) {
  const uint64_t begin = device_clock();
  std::optional<Fault> fault;
  try {
    const char *plan = room_.plans.find(gpu_, node_, packet.kernel_object);
    const auto queue = reinterpret_cast<uint64_t>(queue_around(read_));
    CheckedLaunches::Choice choice = room_.checked.choose(plan, packet);
    const SampledLaunches::Choice sampled = room_.sampled.choose(choice.plan, packet, gpu_, cooperative_);
    choice.plan = sampled.plan;
    auto launch = std::make_unique<Launch>(
        resources_, Packet{&packet, choice, plan, &sampled.how, queue, id, cooperative_, node_, gpu_, member_});
    const Published published(mutex_, launch_, *launch, [&](std::unique_lock<std::mutex> &lock) {
      released_.wait(lock, [&] { return !is_suspended_ || stopping(); });
      debugged_.id = id_;
      if (stopping())
        launch->abort();
      else if (debugged_.format && room_.debugging.is_attached())
        launch->step(debugged_);
    });
    const uint64_t code = packet.kernel_object + get(plan, layout::plan::code_delta);
    const wire::CaptureRequest request{gpu_,
                                       get(plan, layout::plan::kernel),
                                       reinterpret_cast<uint64_t>(&packet),
                                       queue,
                                       code,
                                       id,
                                       cooperative_,
                                       {},
                                       {},
                                       {}};
    Capturing capturing(room_.service, *room_.memory.table(node_), request, packet, [this] { return stopping(); });
    {
      const LongLaunches::Running running(room_.long_launches, plan, [&] { return launch->progress(); });
      room_.hot_code.launched();
      const auto start = std::chrono::steady_clock::now();
      fault = launch->run();
      room_.checked.ended(choice, std::chrono::steady_clock::now() - start);
      if (!fault && !stopping())
        room_.sampled.ended(sampled);
    }
    if (fault)
      fault->kernel = pointer<const char *>(plan, layout::plan::name);
    capturing.ended(fault.has_value() || stopping(), launch->went_outside());
  } catch (const std::exception &problem) {
    fault.emplace();
    fault->error = QueueError::kCode;
    fault->text = problem.what();
  }
  if (stopping())
    failed_ = true; // cut short: not completed
  else if (fault)
    fail(*fault, &packet);
  else
    complete(packet.completion_signal, begin);
}

bool AqlQueue::barrier(const hsa::BarrierPacket &packet, bool all) {
  const bool done = wait_until([&] {
    bool any = false, every = true, none = true;
    for (hsa::SignalHandle signal : packet.dep_signal)
      if (signal) {
        none = false;
        (value_of(signal) == 0 ? any : every) = value_of(signal) == 0;
      }
    return none || (all ? every : any);
  });
  if (done) {
    for (hsa::SignalHandle signal : packet.dep_signal)
      room_.order.waited(member_, signal_of(signal));
    complete(packet.completion_signal, device_clock());
  }
  return done;
}

// A barrier on the value of one signal, or a packet of the command processor's own language, which changes caches only.
bool AqlQueue::vendor(const char *raw) {
  const auto &packet = *reinterpret_cast<const hsa::BarrierValuePacket *>(raw);
  const uint64_t begin = device_clock();
  if (packet.format == hsa::VendorFormat::kBarrierValue) {
    const bool done = wait_until([&] {
      if (!packet.signal)
        return true;
      const int64_t value = value_of(packet.signal) & packet.mask;
      switch (packet.condition) {
      case hsa::Condition::kEqual:
        return value == packet.value;
      case hsa::Condition::kNotEqual:
        return value != packet.value;
      case hsa::Condition::kLess:
        return value < packet.value;
      default:
        return value >= packet.value;
      }
    });
    if (done) {
      room_.order.waited(member_, signal_of(packet.signal));
      complete(packet.completion_signal, begin);
    }
    return done;
  }
  // ROCr sends an indirect buffer of the command processor's language to invalidate the instruction cache.
  if (packet.format != hsa::VendorFormat::kPm4) {
    Fault fault;
    fault.error = QueueError::kPacket;
    fault.text = "a vendor packet of format " + std::to_string(static_cast<unsigned>(packet.format));
    fail(fault, nullptr);
    return false;
  }
  complete(packet.completion_signal, begin);
  return true;
}

void AqlQueue::complete(hsa::SignalHandle handle, uint64_t begin) {
  if (!handle)
    return;
  hsa::Signal *signal = signal_of(handle);
  room_.order.publish(member_, signal);
  signal->start_ts = begin;
  signal->end_ts = std::max(device_clock(), begin + 1);
  // The signal may be destroyed as soon as its value is 0.
  const uint64_t mailbox = signal->event_mailbox_ptr;
  const unsigned event = signal->event_id;
  __atomic_sub_fetch(&signal->value, 1, __ATOMIC_SEQ_CST);
  if (mailbox)
    room_.events.raise(event);
}

// Tell a runtime that lets debuggers attach, by the word that it has named in the context save area's header; return
// false if it has not.
bool AqlQueue::tell_runtime(uint64_t exceptions) {
  struct {
    uint32_t offsets[6];
    uint64_t word;
    uint32_t event, reserved;
  } header;
  if (!debugged_.area || debugged_.area_size < sizeof header)
    return false;
  std::memcpy(&header, debugged_.area, sizeof header);
  if (!header.word)
    return false;
  __atomic_or_fetch(reinterpret_cast<uint64_t *>(header.word), exceptions, __ATOMIC_RELEASE);
  room_.events.raise(header.event);
  return true;
}

namespace {

uint64_t exceptions_of(QueueError error) {
  switch (error) {
  case QueueError::kDimensions:
    return exceptions::kDimensions;
  case QueueError::kGroupMemory:
    return exceptions::kGroupMemory;
  case QueueError::kCode:
    return exceptions::kCode;
  case QueueError::kPacket:
    return exceptions::kPacket;
  case QueueError::kGroupSize:
    return exceptions::kGroupSize;
  case QueueError::kRegisters:
    return exceptions::kRegisters;
  case QueueError::kAperture:
    return exceptions::kApertureViolation;
  case QueueError::kInstruction:
    return exceptions::kIllegalInstruction;
  default:
    return exceptions::kTrap;
  }
}

} // namespace

// Stop the queue, as hardware does: report a memory fault to the driver, other faults to the signal that the runtime
// watches.
void AqlQueue::fail(const Fault &fault, const hsa::DispatchPacket *packet) {
  failed_ = true;
  std::string text = "luthier: " + fault.text + "\n";
  if (packet)
    text += "luthier: in a dispatch of " + std::to_string(packet->grid_size_x) + " x " +
            std::to_string(packet->grid_size_y) + " x " + std::to_string(packet->grid_size_z) +
            " work-items, in work-groups of " + std::to_string(packet->workgroup_size_x) + " x " +
            std::to_string(packet->workgroup_size_y) + " x " + std::to_string(packet->workgroup_size_z) +
            (fault.kernel.empty() ? "" : ", of kernel " + fault.kernel) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (fault.is_memory) {
    room_.memory_fault(node_, fault.address);
    return;
  }
  if (room_.debugging.is_enabled() && tell_runtime(exceptions_of(fault.error)))
    return;
  hsa::Signal *signal = signal_of(queue_around(read_)->queue_inactive_signal);
  if (!signal)
    return;
  __atomic_store_n(&signal->value, static_cast<int64_t>(fault.error), __ATOMIC_RELEASE);
  if (signal->event_mailbox_ptr)
    room_.events.raise(signal->event_id);
}

} // namespace luthier
