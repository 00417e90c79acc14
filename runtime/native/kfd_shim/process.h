// The state of a process in the driver.
#pragma once

#include <mutex>
#include <vector>

#include "buffer_object.h"
#include "debug_server.h"
#include "requests.h"
#include "svm.h"

namespace luthier {

// A handle of the kernel driver to a buffer object.
struct Buffer {
  std::shared_ptr<BufferObject> object;
  uint64_t address, gpu_address; // 0: nowhere
  std::vector<uint32_t> mapped;  // nodes
};

// A handle of a render device to a buffer object, and where the device has parts of it.
struct GemHandle {
  std::shared_ptr<BufferObject> object;
  uint64_t address = 0; // on the host, since the first mapping; it is known only here

  struct Part {
    uint64_t gpu_address, offset, size;
  };
  std::vector<Part> parts;
};

struct Process {
  explicit Process(System &system) : system(system), svm(system.memory) {}

  // Return the calling process; null if it has not opened the driver. A forked child inherits none, and opens it again.
  static Process *current();

  System &system;
  std::mutex mutex;
  std::map<uint64_t, Buffer> buffers;
  uint64_t next_handle = 1;
  std::map<unsigned, uint32_t> event_types;
  ExportedObjects exported;
  std::map<uint64_t, GemHandle> gem; // by device and handle
  SvmRanges svm;
  std::map<uint64_t, kfd::CreateQueue> queues; // as they were made
  uint64_t runtime = 0;                        // the runtime's r_debug; 0: it is not enabled
  std::unique_ptr<DebugServer> debug_server;
};

// Offsets by which a process maps a device.
inline constexpr unsigned kPageBits = 12;
inline constexpr uint64_t kDoorbells = 1ull << 60, kDoorbellSlots = 1024;
inline constexpr uint64_t kMailboxes = 1ull << 63; // that an event has one
inline constexpr uint64_t kGem = 1ull << 59;       // | key of the handle << kPageBits

// Key of a render device's handle.
inline uint64_t gem_key(unsigned gpu, uint32_t handle) { return uint64_t{gpu} << 32 | handle; }

} // namespace luthier
