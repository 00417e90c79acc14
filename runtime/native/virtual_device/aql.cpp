#include "queue.h"

#include <cstddef>
#include <cstdio>
#include <hsa/amd_hsa_queue.h>
#include <hsa/amd_hsa_signal.h>
#include <hsa/hsa_ext_amd.h>

namespace luthier {

namespace {

constexpr uint64_t kPacket = 64;

amd_signal_t *signal_of(hsa_signal_t handle) { return reinterpret_cast<amd_signal_t *>(handle.handle); }

int64_t value_of(hsa_signal_t signal) { return __atomic_load_n(&signal_of(signal)->value, __ATOMIC_ACQUIRE); }

void store(volatile int64_t *place, int64_t value) { __atomic_store_n(place, value, __ATOMIC_RELEASE); }

// The structure around the read index that the queue was created with.
amd_queue_t *queue_around(uint64_t *read) {
  return reinterpret_cast<amd_queue_t *>(reinterpret_cast<char *>(read) - offsetof(amd_queue_t, read_dispatch_id));
}

}  // namespace

AqlQueue::AqlQueue(Room &room, unsigned node, unsigned gpu, char *ring, uint64_t size, uint64_t *write, uint64_t *read)
    : Queue(room, node, ring, size, write, read), gpu_(gpu), resources_(room.service, room.memory, room.crew) {
  resources_.interrupt = [this] { room_.events.interrupt(); };
}

void AqlQueue::abort() {
  std::lock_guard lock(mutex_);
  if (launch_)
    launch_->abort();
}

// A packet is ours when its header says so, whether or not the doorbell has been seen: several producers may ring it
// out of order.
bool AqlQueue::process() {
  if (failed_ || next_ >= __atomic_load_n(write_, __ATOMIC_ACQUIRE))
    return false;
  char *packet = ring_ + next_ * kPacket % size_;
  auto *header = reinterpret_cast<uint16_t *>(packet);
  const unsigned type = __atomic_load_n(header, __ATOMIC_ACQUIRE) >> HSA_PACKET_HEADER_TYPE & 0xFF;
  bool done = true;
  switch (type) {
  case HSA_PACKET_TYPE_INVALID:
    return false;
  case HSA_PACKET_TYPE_KERNEL_DISPATCH:
    dispatch(*reinterpret_cast<hsa_kernel_dispatch_packet_t *>(packet), next_);
    break;
  case HSA_PACKET_TYPE_BARRIER_AND:
  case HSA_PACKET_TYPE_BARRIER_OR:
    done = barrier(*reinterpret_cast<hsa_barrier_and_packet_t *>(packet), type == HSA_PACKET_TYPE_BARRIER_AND);
    break;
  case HSA_PACKET_TYPE_VENDOR_SPECIFIC:
    done = vendor(packet);
    break;
  default: {
    Fault fault;
    fault.error = QueueError::kPacket;
    fault.text = "an AQL packet of type " + std::to_string(type);
    fail(fault, nullptr);
  }
  }
  if (!done || failed_)
    return false;
  __atomic_store_n(header, HSA_PACKET_TYPE_INVALID, __ATOMIC_RELEASE);
  __atomic_store_n(read_, ++next_, __ATOMIC_RELEASE);
  return true;
}

void AqlQueue::dispatch(const hsa_kernel_dispatch_packet_t &packet, uint64_t id) {
  const uint64_t begin = device_clock();
  std::optional<Fault> fault;
  try {
    const char *plan = room_.plans.find(gpu_, node_, packet.kernel_object);
    const auto queue = reinterpret_cast<uint64_t>(queue_around(read_));
    auto launch = std::make_unique<Launch>(resources_, Packet{&packet, plan, queue, id, cooperative_, node_});
    {
      std::lock_guard lock(mutex_);
      launch_ = launch.get();
    }
    fault = launch->run();
    std::lock_guard lock(mutex_);
    launch_ = nullptr;
  } catch (const std::exception &problem) {
    fault.emplace();
    fault->error = QueueError::kCode;
    fault->text = problem.what();
  }
  if (stopping())
    failed_ = true;  // cut short: not completed
  else if (fault)
    fail(*fault, &packet);
  else
    complete(packet.completion_signal, begin);
}

bool AqlQueue::barrier(const hsa_barrier_and_packet_t &packet, bool all) {
  const bool done = wait_until([&] {
    bool any = false, every = true, none = true;
    for (hsa_signal_t signal : packet.dep_signal)
      if (signal.handle) {
        none = false;
        (value_of(signal) == 0 ? any : every) = value_of(signal) == 0;
      }
    return none || (all ? every : any);
  });
  if (done)
    complete(packet.completion_signal, device_clock());
  return done;
}

// A barrier on the value of one signal, or a packet of the command processor's own language, which changes caches only.
bool AqlQueue::vendor(const char *raw) {
  const auto &header = *reinterpret_cast<const hsa_amd_vendor_packet_header_t *>(raw);
  const uint64_t begin = device_clock();
  if (header.AmdFormat == HSA_AMD_PACKET_TYPE_BARRIER_VALUE) {
    const auto &packet = *reinterpret_cast<const hsa_amd_barrier_value_packet_t *>(raw);
    const bool done = wait_until([&] {
      if (!packet.signal.handle)
        return true;
      const int64_t value = value_of(packet.signal) & packet.mask;
      switch (packet.cond) {
      case HSA_SIGNAL_CONDITION_EQ:
        return value == packet.value;
      case HSA_SIGNAL_CONDITION_NE:
        return value != packet.value;
      case HSA_SIGNAL_CONDITION_LT:
        return value < packet.value;
      default:
        return value >= packet.value;
      }
    });
    if (done)
      complete(packet.completion_signal, begin);
    return done;
  }
  constexpr uint8_t kPm4 = 1;  // an indirect buffer: ROCr invalidates the instruction cache so
  if (header.AmdFormat != kPm4) {
    Fault fault;
    fault.error = QueueError::kPacket;
    fault.text = "a vendor packet of format " + std::to_string(header.AmdFormat);
    fail(fault, nullptr);
    return false;
  }
  hsa_signal_t signal;
  std::memcpy(&signal, raw + offsetof(hsa_kernel_dispatch_packet_t, completion_signal), sizeof signal);
  complete(signal, begin);
  return true;
}

void AqlQueue::complete(hsa_signal_t handle, uint64_t begin) {
  if (!handle.handle)
    return;
  amd_signal_t *signal = signal_of(handle);
  signal->start_ts = begin;
  signal->end_ts = std::max(device_clock(), begin + 1);
  // The signal may be gone as soon as its value is 0.
  const uint64_t mailbox = signal->event_mailbox_ptr;
  const unsigned event = signal->event_id;
  __atomic_sub_fetch(&signal->value, 1, __ATOMIC_SEQ_CST);
  if (mailbox)
    room_.events.raise(event);
}

// The queue stops, as on hardware: a memory fault goes to the driver, all else to the signal that the runtime watches.
void AqlQueue::fail(const Fault &fault, const hsa_kernel_dispatch_packet_t *packet) {
  failed_ = true;
  std::string text = "luthier: " + fault.text + "\n";
  if (packet)
    text += "luthier: in a dispatch of " + std::to_string(packet->grid_size_x) + " x " +
            std::to_string(packet->grid_size_y) + " x " + std::to_string(packet->grid_size_z) + " work-items\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (fault.is_memory) {
    room_.memory_fault(node_, fault.address);
    return;
  }
  amd_signal_t *signal = signal_of(queue_around(read_)->queue_inactive_signal);
  if (!signal)
    return;
  store(&signal->value, static_cast<int64_t>(fault.error));
  if (signal->event_mailbox_ptr)
    room_.events.raise(signal->event_id);
}

}  // namespace luthier
