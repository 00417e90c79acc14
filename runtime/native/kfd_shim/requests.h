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

struct RuntimeEnable {
  uint64_t r_debug; // of the runtime
  uint32_t mode, capabilities;
};
inline constexpr uint32_t kEnableRuntime = 1;              // a mode
inline constexpr uint32_t kDumpsWaves = uint32_t{1} << 31; // a capability: the driver itself writes waves to core files

enum class DebugOperation : uint32_t {
  kEnable,
  kDisable,
  kSendRuntimeEvent,
  kSetExceptionsEnabled,
  kSetWaveLaunchOverride,
  kSetWaveLaunchMode,
  kSuspendQueues,
  kResumeQueues,
  kSetAddressWatch,
  kClearAddressWatch,
  kSetFlags,
  kQueryDebugEvent,
  kQueryExceptionInfo,
  kGetQueueSnapshot,
  kGetDeviceSnapshot,
};
struct DebugTrap {
  uint32_t pid;
  DebugOperation operation;
  union {
    struct {
      uint64_t exceptions, info;
      uint32_t info_size, notifier;
    } enable;
    struct {
      uint64_t exceptions;
    } reported;
    struct {
      uint32_t mode, enabled, supported, pad;
    } override;
    struct {
      uint32_t mode, pad;
    } launch;
    struct {
      uint64_t exceptions, ids;
      uint32_t count, grace;
    } suspend;
    struct {
      uint64_t ids;
      uint32_t count, pad;
    } resume;
    struct {
      uint32_t flags, pad;
    } flags;
    struct {
      uint64_t exceptions;
      uint32_t gpu_id, queue_id;
    } event;
    struct {
      uint64_t info;
      uint32_t info_size, source, code, clear;
    } exception;
    struct {
      uint64_t exceptions, entries;
      uint32_t count, entry_size;
    } snapshot;
  };
};
static_assert(sizeof(DebugTrap) == 32);
inline constexpr uint32_t kHaltWaves = 1;                                   // a launch mode
inline constexpr uint32_t kQueueError = 1u << 30, kQueueInvalid = 1u << 31; // marks of queue ids

struct RuntimeInfo {
  uint64_t r_debug;
  uint32_t state, sets_up_ttmps; // state 1: enabled
};
struct QueueSnapshot {
  uint64_t exceptions, ring_base_address, write_pointer_address, read_pointer_address, ctx_save_restore_address;
  uint32_t queue_id, gpu_id, ring_size, queue_type, ctx_save_restore_area_size, reserved;
};
struct DeviceSnapshot {
  uint64_t exceptions, lds_base, lds_limit, scratch_base, scratch_limit, gpuvm_base, gpuvm_limit;
  uint32_t gpu_id, location_id, vendor_id, device_id, revision_id, subsystem_vendor_id, subsystem_device_id, fw_version;
  uint32_t gfx_target_version, simd_count, max_waves_per_simd, array_count, simd_arrays_per_engine, num_xcc, capability;
  uint32_t debug_prop;
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
