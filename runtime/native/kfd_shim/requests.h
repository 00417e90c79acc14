// Requests to the kernel driver that are missing in the kernel headers, or in older ones
// (include/uapi/linux/kfd_ioctl.h). Structures are those of the newest version: what an older caller does not pass is
// 0.
#pragma once

#include <linux/kfd_ioctl.h>

namespace luthier::kfd {

// Numbers of requests. Only AMD's own driver has those above 0x80.
inline constexpr unsigned kAvailableMemory = 0x23, kExportDmabuf = 0x24, kRuntimeEnable = 0x25, kDebugTrap = 0x26,
                          kImportHandle = 0x80, kExportHandle = 0x81;

struct CreateQueue {
  uint64_t ring_base_address, write_pointer_address, read_pointer_address, doorbell_offset;
  uint32_t ring_size, gpu_id, queue_type, queue_percentage, queue_priority, queue_id;
  uint64_t eop_buffer_address, eop_buffer_size, ctx_save_restore_address;
  uint32_t ctx_save_restore_size, ctl_stack_size;
  uint32_t sdma_engine_id, reserved; // since 1.17
};
inline constexpr uint32_t kQueueOfCopyEngine = 4; // a queue type, since 1.17

// One event that a thread waits for. The data that is returned depends on its type.
struct EventData {
  union {
    kfd_hsa_memory_exception_data memory;
    uint64_t last_age; // of a signal event, since 1.14; 0: not asked
  };
  uint64_t extension;
  uint32_t event_id, reserved;
};
static_assert(sizeof(EventData) == sizeof(kfd_event_data));

struct AvailableMemory {
  uint64_t available;
  uint32_t gpu_id, reserved;
};

struct ExportDmabuf {
  uint64_t handle;
  uint32_t flags, fd;
};

struct ImportHandle {
  uint64_t handle, address, mmap_offset;
  uint32_t share[4], gpu_id, flags;
};

struct ExportHandle {
  uint64_t handle;
  uint32_t share[4], gpu_id, flags;
};

// Followed by `count` attributes.
struct Svm {
  uint64_t start, size;
  uint32_t operation, count;
};
struct SvmAttribute {
  uint32_t type, value;
};

} // namespace luthier::kfd
