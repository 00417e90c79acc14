#include "driver.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <linux/kfd_ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "chips.h"
#include "system.h"

namespace luthier {

namespace {

// Requests that are in no kernel header: AMD's own driver has them beyond 0x80.
struct ImportHandle {
  uint64_t handle, address, mmap_offset;
  uint32_t share[4], gpu, flags;
};
struct ExportHandle {
  uint64_t handle;
  uint32_t share[4], gpu, flags;
};
constexpr unsigned kImport = 0x80, kExport = 0x81, kAvailableMemory = 0x23;
constexpr uint32_t kShareMagic = 0x4C555448;

// An allocation, by the driver's handle.
struct Buffer {
  uint64_t address, gpu_address, size;
  uint32_t gpu, flags;
  bool is_ours;  // the pages were put there by this driver
  std::vector<uint32_t> mapped;
};

// What the driver keeps of a process.
struct Process {
  System *system = nullptr;
  std::mutex mutex;
  std::map<uint64_t, Buffer> buffers;
  uint64_t next_handle = 1;
  std::map<unsigned, uint32_t> event_types;
};

Process *the_process = nullptr;
std::mutex process_mutex;

// Nothing of it is in a forked child, which opens the device anew.
Process &process() {
  std::lock_guard lock(process_mutex);
  System *system = System::current();
  if (!the_process || the_process->system != system) {
    the_process = new Process;
    the_process->system = system;
  }
  return *the_process;
}

constexpr unsigned kPageBits = 12;

uint64_t nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000ull + now.tv_nsec;
}

class Driver {
public:
  Driver(System &system, Process &process) : system_(system), process_(process) {}

  // With 9 there is `available_memory`, which ROCr of ROCm 6 asks for; 10 and 11 are about what there is none of
  // (profiling of events, migration). From 12 on memory would be exported as dma-buf.
  int get_version(kfd_ioctl_get_version_args &a) {
    a.major_version = 1;
    a.minor_version = 11;
    return 0;
  }

  int create_queue(kfd_ioctl_create_queue_args &a) {
    const unsigned node = node_of(a.gpu_id);
    if (!node)
      return -EINVAL;
    char *ring = reinterpret_cast<char *>(a.ring_base_address);
    auto *write = reinterpret_cast<uint64_t *>(a.write_pointer_address);
    auto *read = reinterpret_cast<uint64_t *>(a.read_pointer_address);
    if (!ring || !write || !read || !a.ring_size || (a.ring_size & (a.ring_size - 1)))
      return -EINVAL;
    std::unique_ptr<Queue> queue;
    switch (a.queue_type) {
    case KFD_IOC_QUEUE_TYPE_COMPUTE_AQL:
      queue = std::make_unique<AqlQueue>(system_.room, node, node - 1, ring, a.ring_size, write, read);
      break;
    case KFD_IOC_QUEUE_TYPE_SDMA:
    case KFD_IOC_QUEUE_TYPE_SDMA_XGMI:
      queue = std::make_unique<SdmaQueue>(system_.room, node, ring, a.ring_size, write, read);
      break;
    default:
      return -EINVAL;
    }
    // Doorbells are rung, and nobody listens: queues look at their write pointers.
    queue->use_doorbell(write);
    a.queue_id = system_.add(std::move(queue));
    a.doorbell_offset = kDoorbells | a.queue_id % kDoorbellSlots * sizeof(uint64_t);
    return 0;
  }

  int destroy_queue(kfd_ioctl_destroy_queue_args &a) { return system_.remove(a.queue_id) ? 0 : -EINVAL; }

  // A share of 0 percent suspends the queue.
  int update_queue(kfd_ioctl_update_queue_args &a) {
    Queue *queue = system_.queue(a.queue_id);
    if (!queue)
      return -EINVAL;
    queue->set_active(a.queue_percentage != 0);
    return 0;
  }

  // Which compute units execute makes no difference here.
  int set_cu_mask(kfd_ioctl_set_cu_mask_args &a) { return system_.queue(a.queue_id) ? 0 : -EINVAL; }

  int alloc_queue_gws(kfd_ioctl_alloc_queue_gws_args &a) {
    auto *queue = dynamic_cast<AqlQueue *>(system_.queue(a.queue_id));
    if (!queue)
      return -EINVAL;
    if (a.num_gws > layout::GRID_BARRIERS)
      return -EBUSY;
    queue->set_cooperative();
    a.first_gws = 0;
    return 0;
  }

  int get_clock_counters(kfd_ioctl_get_clock_counters_args &a) {
    a.cpu_clock_counter = nanoseconds(CLOCK_MONOTONIC_RAW);
    a.system_clock_counter = nanoseconds(CLOCK_BOOTTIME);
    a.system_clock_freq = 1'000'000'000;
    a.gpu_clock_counter = a.system_clock_counter / 10;
    return 0;
  }

  int get_apertures(kfd_ioctl_get_process_apertures_new_args &a) {
    const unsigned count = system_.gpus().size();
    auto *all = reinterpret_cast<kfd_process_device_apertures *>(a.kfd_process_device_apertures_ptr);
    const unsigned room = a.num_of_nodes;
    a.num_of_nodes = count;
    for (unsigned index = 0; all && index < std::min(count, room); ++index) {
      const Engine &engine = system_.service.setup().engine;
      kfd_process_device_apertures &one = all[index] = {};
      one.gpu_id = kFirstGpuId + index + 1;
      one.lds_base = engine.shared_base;
      one.lds_limit = engine.shared_base + 0xFFFF'FFFF;
      one.scratch_base = engine.private_base;
      one.scratch_limit = engine.private_base + 0xFFFF'FFFF;
      one.gpuvm_base = 1 << 16;
      one.gpuvm_limit = (1ull << 47) - 1;
    }
    if (all && room < count)
      return -EINVAL;
    return 0;
  }

  int create_event(kfd_ioctl_create_event_args &a) {
    if (a.event_page_offset) {  // the handle of the memory for mailboxes
      std::lock_guard lock(process_.mutex);
      const auto page = process_.buffers.find(a.event_page_offset);
      if (page == process_.buffers.end() || page->second.size < kMaxEvents * sizeof(uint64_t))
        return -EINVAL;
      system_.events.move(reinterpret_cast<uint64_t *>(page->second.address));
    }
    const unsigned id = system_.events.create(!a.auto_reset, false);
    if (!id)
      return -ENOSPC;
    a.event_id = a.event_slot_index = a.event_trigger_data = id;
    const bool has_mailbox = a.event_type == KFD_IOC_EVENT_SIGNAL || a.event_type == KFD_IOC_EVENT_DEBUG_EVENT;
    a.event_page_offset = has_mailbox ? kMailboxes : 0;
    {
      std::lock_guard lock(process_.mutex);
      process_.event_types[id] = a.event_type;
    }
    if (a.event_type == KFD_IOC_EVENT_MEMORY)
      system_.watch_faults(id);
    return 0;
  }

  int destroy_event(kfd_ioctl_destroy_event_args &a) { return system_.events.destroy(a.event_id) ? 0 : -EINVAL; }
  int set_event(kfd_ioctl_set_event_args &a) { return system_.events.raise(a.event_id) ? 0 : -EINVAL; }
  int reset_event(kfd_ioctl_reset_event_args &a) { return system_.events.lower(a.event_id) ? 0 : -EINVAL; }

  int wait_events(kfd_ioctl_wait_events_args &a) {
    auto *all = reinterpret_cast<kfd_event_data *>(a.events_ptr);
    std::vector<unsigned> ids;
    for (unsigned index = 0; index < a.num_events; ++index)
      ids.push_back(all[index].event_id);
    const bool forever = a.timeout == 0xFFFF'FFFF;
    if (!system_.events.wait(ids, a.wait_for_all, forever ? -1 : int64_t{a.timeout})) {
      a.wait_result = KFD_IOC_WAIT_RESULT_TIMEOUT;
      return 0;
    }
    a.wait_result = KFD_IOC_WAIT_RESULT_COMPLETE;
    const auto fault = system_.fault();
    std::lock_guard lock(process_.mutex);
    for (unsigned index = 0; fault && index < a.num_events; ++index)
      if (process_.event_types[ids[index]] == KFD_IOC_EVENT_MEMORY) {
        kfd_hsa_memory_exception_data &told = all[index].memory_exception_data = {};
        told.failure.NotPresent = 1;
        told.va = fault->address;
        told.gpu_id = kFirstGpuId + fault->node;
      }
    return 0;
  }

  int alloc_memory(kfd_ioctl_alloc_memory_of_gpu_args &a) {
    const unsigned node = node_of(a.gpu_id);
    if (!node || !a.size || !a.va_addr)
      return -EINVAL;
    Buffer made{a.va_addr, a.va_addr, a.size, a.gpu_id, a.flags, true, {}};
    const uint64_t taken = a.flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM ? a.size : 0;
    if (!system_.memory.take(node, taken))
      return -ENOMEM;
    if (a.flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR) {
      made.address = a.mmap_offset;
      made.is_ours = false;
    } else if (mmap(reinterpret_cast<void *>(a.va_addr), a.size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
      system_.memory.give_back(node, taken);
      return -ENOMEM;
    }
    const uint64_t handle = keep(made, made.is_ours ? Kind::kAllocated : Kind::kRegistered, 0, taken);
    a.handle = handle;
    if (made.is_ours)
      a.mmap_offset = handle << kPageBits;
    return 0;
  }

  int free_memory(kfd_ioctl_free_memory_of_gpu_args &a) {
    std::lock_guard lock(process_.mutex);
    const auto found = process_.buffers.find(a.handle);
    if (found == process_.buffers.end())
      return -EINVAL;
    const Buffer &buffer = found->second;
    system_.memory.drop(buffer.address, buffer.gpu_address);
    if (buffer.is_ours)  // the addresses stay the process's
      mmap(reinterpret_cast<void *>(buffer.address), buffer.size, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    process_.buffers.erase(found);
    return 0;
  }

  template <typename Arguments> int change_mapping(Arguments &a, bool add) {
    const auto *ids = reinterpret_cast<const uint32_t *>(a.device_ids_array_ptr);
    std::lock_guard lock(process_.mutex);
    const auto found = process_.buffers.find(a.handle);
    if (found == process_.buffers.end() || !ids)
      return -EINVAL;
    Buffer &buffer = found->second;
    for (; a.n_success < a.n_devices; ++a.n_success) {
      const unsigned node = node_of(ids[a.n_success]);
      if (!node)
        return -EINVAL;
      std::erase(buffer.mapped, node);
      if (add)
        buffer.mapped.push_back(node);
    }
    return system_.memory.set_mapped(buffer.address, buffer.gpu_address, buffer.mapped) ? 0 : -EINVAL;
  }

  int get_tile_config(kfd_ioctl_get_tile_config_args &a) {
    const unsigned node = node_of(a.gpu_id);
    if (!node)
      return -EINVAL;
    a.num_tile_configs = a.num_macro_tile_configs = 0;  // there are no images
    a.gb_addr_config = chip_of(system_.gpus()[node - 1]).tiles;
    a.num_banks = a.num_ranks = 0;
    return 0;
  }

  // Retry of memory faults is off, and no device here has it.
  int set_xnack_mode(kfd_ioctl_set_xnack_mode_args &a) {
    if (a.xnack_enabled > 0)
      return -EPERM;
    a.xnack_enabled = 0;
    return 0;
  }

  int available_memory(kfd_ioctl_get_available_memory_args &a) {
    const unsigned node = node_of(a.gpu_id);
    if (!node)
      return -EINVAL;
    a.available = system_.memory.available(node);
    return 0;
  }

  int export_handle(ExportHandle &a) {
    std::lock_guard lock(process_.mutex);
    const auto found = process_.buffers.find(a.handle);
    if (found == process_.buffers.end() || !found->second.is_ours)
      return -EINVAL;
    const Buffer &buffer = found->second;
    const auto known = system_.memory.find(buffer.address);
    uint64_t name = known ? known->name : 0;
    if (!name) {
      const int fd = system_.memory.make_file(buffer.address, buffer.size);
      name = system_.service.share(fd, buffer.size);
      close(fd);
      system_.memory.set_name(buffer.address, name);
    }
    const uint32_t words[4] = {kShareMagic, static_cast<uint32_t>(name), static_cast<uint32_t>(name >> 32), buffer.gpu};
    std::copy_n(words, 4, a.share);
    a.flags = buffer.flags;
    return 0;
  }

  int import_handle(ImportHandle &a) {
    if (a.share[0] != kShareMagic || !node_of(a.share[3]))
      return -EINVAL;
    const uint64_t name = a.share[1] | uint64_t{a.share[2]} << 32;
    uint64_t size = 0;
    const int fd = system_.service.attach(name, size);
    if (fd < 0)
      return -EINVAL;
    void *wanted = reinterpret_cast<void *>(a.address);
    void *place = mmap(wanted, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    close(fd);
    if (place == MAP_FAILED)
      return -ENOMEM;
    a.gpu = a.share[3];
    a.handle = keep({a.address, a.address, size, a.gpu, a.flags, true, {}}, Kind::kShared, name, 0);
    a.mmap_offset = a.handle << kPageBits;
    return 0;
  }

  static constexpr uint64_t kDoorbells = 1ull << 60, kDoorbellSlots = 1024;
  static constexpr uint64_t kMailboxes = 1ull << 63;  // that an event has one

private:
  // 0 if there is no such GPU.
  unsigned node_of(uint32_t gpu_id) const {
    return gpu_id > kFirstGpuId && gpu_id < kFirstGpuId + system_.nodes() ? gpu_id - kFirstGpuId : 0;
  }

  uint64_t keep(const Buffer &buffer, Kind kind, uint64_t name, uint64_t taken) {
    Allocation made;
    made.address = buffer.address;
    made.gpu_address = buffer.gpu_address;
    made.size = buffer.size;
    made.kind = kind;
    made.node = node_of(buffer.gpu);
    made.flags = buffer.flags;
    made.name = name;
    made.taken = taken;
    system_.memory.adopt(made);
    std::lock_guard lock(process_.mutex);
    const uint64_t handle = process_.next_handle++;
    process_.buffers.emplace(handle, buffer);
    return handle;
  }

  System &system_;
  Process &process_;
};

int answer(Driver driver, unsigned number, void *argument) {
#define LUTHIER_REQUEST(number, Arguments, method)                                                                     \
  case number:                                                                                                         \
    return driver.method(*static_cast<Arguments *>(argument))
  switch (number) {
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_GET_VERSION), kfd_ioctl_get_version_args, get_version);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_CREATE_QUEUE), kfd_ioctl_create_queue_args, create_queue);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_DESTROY_QUEUE), kfd_ioctl_destroy_queue_args, destroy_queue);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_UPDATE_QUEUE), kfd_ioctl_update_queue_args, update_queue);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_SET_CU_MASK), kfd_ioctl_set_cu_mask_args, set_cu_mask);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_ALLOC_QUEUE_GWS), kfd_ioctl_alloc_queue_gws_args, alloc_queue_gws);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_GET_CLOCK_COUNTERS), kfd_ioctl_get_clock_counters_args, get_clock_counters);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_GET_PROCESS_APERTURES_NEW), kfd_ioctl_get_process_apertures_new_args,
                    get_apertures);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_CREATE_EVENT), kfd_ioctl_create_event_args, create_event);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_DESTROY_EVENT), kfd_ioctl_destroy_event_args, destroy_event);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_SET_EVENT), kfd_ioctl_set_event_args, set_event);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_RESET_EVENT), kfd_ioctl_reset_event_args, reset_event);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_WAIT_EVENTS), kfd_ioctl_wait_events_args, wait_events);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_ALLOC_MEMORY_OF_GPU), kfd_ioctl_alloc_memory_of_gpu_args, alloc_memory);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_FREE_MEMORY_OF_GPU), kfd_ioctl_free_memory_of_gpu_args, free_memory);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_GET_TILE_CONFIG), kfd_ioctl_get_tile_config_args, get_tile_config);
    LUTHIER_REQUEST(_IOC_NR(AMDKFD_IOC_SET_XNACK_MODE), kfd_ioctl_set_xnack_mode_args, set_xnack_mode);
    LUTHIER_REQUEST(kAvailableMemory, kfd_ioctl_get_available_memory_args, available_memory);
    LUTHIER_REQUEST(kExport, ExportHandle, export_handle);
    LUTHIER_REQUEST(kImport, ImportHandle, import_handle);
  case _IOC_NR(AMDKFD_IOC_MAP_MEMORY_TO_GPU):
    return driver.change_mapping(*static_cast<kfd_ioctl_map_memory_to_gpu_args *>(argument), true);
  case _IOC_NR(AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU):
    return driver.change_mapping(*static_cast<kfd_ioctl_unmap_memory_from_gpu_args *>(argument), false);
  // All memory here is coherent, the device handles traps by itself, and a process has one address space.
  case _IOC_NR(AMDKFD_IOC_SET_MEMORY_POLICY):
  case _IOC_NR(AMDKFD_IOC_SET_SCRATCH_BACKING_VA):
  case _IOC_NR(AMDKFD_IOC_SET_TRAP_HANDLER):
  case _IOC_NR(AMDKFD_IOC_ACQUIRE_VM):
    return 0;
  default:  // debugging, performance counters, migration
    return -ENOTTY;
  }
#undef LUTHIER_REQUEST
}

}  // namespace

bool kfd_open() noexcept {
  try {
    System::open();
    return true;
  } catch (const std::exception &problem) {
    std::fprintf(stderr, "luthier: no virtual device: %s\n", problem.what());
    return false;
  }
}

int kfd_ioctl(unsigned long request, void *argument) noexcept {
  System *system = System::current();
  if (!system)
    return -EBADF;
  try {
    return answer({*system, process()}, _IOC_NR(request), argument);
  } catch (const Failure &problem) {
    std::fprintf(stderr, "luthier: %s\n", problem.what());
    return -EIO;
  } catch (...) {
    return -ENOMEM;
  }
}

void *kfd_mmap(void *address, uint64_t size, int flags, uint64_t offset) noexcept {
  if (flags & MAP_FIXED)
    return address;  // the allocation has put the memory there
  if (offset >= Driver::kDoorbells)
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = EINVAL;
  return MAP_FAILED;
}

}  // namespace luthier
