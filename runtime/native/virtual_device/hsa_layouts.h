// Structures in memory that HSA's runtime shares with a device: AQL packets (HSA Platform System Architecture
// specification 1.2, 2.9), queues and signals in AMD's layout (ROCr's amd_hsa_queue.h, amd_hsa_signal.h). They are
// declared here so that the build needs no ROCm headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace luthier::hsa {

enum class PacketType : uint8_t {
  kVendor = 0,
  kInvalid = 1,
  kDispatch = 2,
  kBarrierAnd = 3,
  kAgentDispatch = 4,
  kBarrierOr = 5,
};

// The low byte of a packet's first word is its type.
constexpr PacketType type_of(uint16_t header) { return static_cast<PacketType>(header & 0xFF); }

// A signal's address, or 0.
using SignalHandle = uint64_t;

struct DispatchPacket {
  uint16_t header, setup;
  uint16_t workgroup_size_x, workgroup_size_y, workgroup_size_z, reserved0;
  uint32_t grid_size_x, grid_size_y, grid_size_z;
  uint32_t private_segment_size, group_segment_size;
  uint64_t kernel_object, kernarg_address, reserved2;
  SignalHandle completion_signal;
};

struct BarrierPacket {
  uint16_t header, reserved0;
  uint32_t reserved1;
  SignalHandle dep_signal[5];
  uint64_t reserved2;
  SignalHandle completion_signal;
};

// The formats of AMD's vendor packets.
enum class VendorFormat : uint8_t {
  kPm4 = 1, // packets of the command processor's own language
  kBarrierValue = 2,
};

enum class Condition : uint32_t { kEqual = 0, kNotEqual = 1, kLess = 2, kGreaterOrEqual = 3 };

struct BarrierValuePacket {
  uint16_t header;
  VendorFormat format;
  uint8_t reserved0;
  uint32_t reserved1;
  SignalHandle signal;
  int64_t value, mask;
  Condition condition;
  uint32_t reserved2;
  uint64_t reserved3, reserved4;
  SignalHandle completion_signal;
};

struct Signal {
  int64_t kind, value;
  uint64_t event_mailbox_ptr;
  uint32_t event_id, reserved1;
  uint64_t start_ts, end_ts;
  uint64_t queue;
  uint32_t reserved3[2];
};

inline int64_t value_of(SignalHandle signal) {
  return __atomic_load_n(&reinterpret_cast<const Signal *>(signal)->value, __ATOMIC_ACQUIRE);
}

// From the ring of packets on, whose fields the driver gets.
struct Queue {
  char head[128];
  uint64_t read_dispatch_id;
  char scratch[56];
  SignalHandle queue_inactive_signal;
};

inline constexpr size_t kPacketSize = 64;
static_assert(sizeof(DispatchPacket) == kPacketSize && sizeof(BarrierPacket) == kPacketSize &&
              sizeof(BarrierValuePacket) == kPacketSize && sizeof(Signal) == 64);
static_assert(offsetof(Queue, read_dispatch_id) == 128 && offsetof(Queue, queue_inactive_signal) == 192);

} // namespace luthier::hsa
