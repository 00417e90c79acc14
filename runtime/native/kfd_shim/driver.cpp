#include "driver.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <pthread.h>
#include <sys/mman.h>

#include "chips.h"
#include "kernel_driver.h"
#include "user_memory.h"

namespace luthier {

namespace {

uint64_t nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000ull + now.tv_nsec;
}

std::mutex process_mutex;
Process *the_process = nullptr;

// Another thread of the parent may have held the lock.
void forget() {
  new (&process_mutex) std::mutex;
  the_process = nullptr;
}

} // namespace

Process *Process::current() {
  static const int registered = pthread_atfork(nullptr, nullptr, forget);
  (void)registered;
  System *system = System::current();
  if (!system)
    return nullptr;
  std::lock_guard lock(process_mutex);
  if (!the_process)
    the_process = new Process(*system); // queues run until the process ends
  return the_process;
}

// From 1.18 on a program may ask for another precision of gfx950's matrix instructions.
int KernelDriver::get_version(kfd_ioctl_get_version_args &a) {
  a.major_version = 1;
  a.minor_version = 17;
  return 0;
}

int KernelDriver::get_clock_counters(kfd_ioctl_get_clock_counters_args &a) {
  a.cpu_clock_counter = nanoseconds(CLOCK_MONOTONIC_RAW);
  a.system_clock_counter = nanoseconds(CLOCK_BOOTTIME);
  a.system_clock_freq = 1'000'000'000;
  a.gpu_clock_counter = a.system_clock_counter / 10;
  return 0;
}

int KernelDriver::get_apertures(kfd_ioctl_get_process_apertures_new_args &a) {
  const unsigned count = system_.gpus().size(), room = a.num_of_nodes;
  const uint64_t to = a.kfd_process_device_apertures_ptr;
  a.num_of_nodes = count;
  for (unsigned index = 0; to && index < std::min(count, room); ++index) {
    const Engine &engine = system_.service.setup().engine;
    kfd_process_device_apertures apertures{};
    apertures.gpu_id = gpu_id_of(index + 1);
    apertures.lds_base = engine.shared_base;
    apertures.lds_limit = engine.shared_base + 0xFFFF'FFFF;
    apertures.scratch_base = engine.private_base;
    apertures.scratch_limit = engine.private_base + 0xFFFF'FFFF;
    apertures.gpuvm_base = kGpuMemoryBase;
    apertures.gpuvm_limit = kGpuMemoryLimit;
    if (!copy_to_user(to + index * sizeof apertures, &apertures, sizeof apertures))
      return -EFAULT;
  }
  return to && room < count ? -EINVAL : 0;
}

int KernelDriver::get_tile_config(kfd_ioctl_get_tile_config_args &a) {
  const unsigned node = node_of(a.gpu_id);
  if (!node)
    return -EINVAL;
  a.num_tile_configs = a.num_macro_tile_configs = 0; // there are no images
  a.gb_addr_config = chip_of(system_.gpus()[node - 1]).tiles;
  a.num_banks = a.num_ranks = 0;
  return 0;
}

// Retry of memory faults is off, and no device here has it.
int KernelDriver::set_xnack_mode(kfd_ioctl_set_xnack_mode_args &a) {
  if (a.xnack_enabled > 0)
    return -EPERM;
  a.xnack_enabled = 0;
  return 0;
}

namespace {

// What the caller does not pass counts as 0, and the answer is as long as the caller's structure.
template <typename Arguments>
int with(KernelDriver &driver, int (KernelDriver::*method)(Arguments &), uint64_t argument, size_t size) {
  Arguments all{};
  size = std::min(size, sizeof all);
  if (!copy_from_user(&all, argument, size))
    return -EFAULT;
  const Arguments given = all;
  const int result = (driver.*method)(all);
  const bool is_same = std::memcmp(&all, &given, size) == 0; // mostly the case for waits
  return is_same || copy_to_user(argument, &all, size) ? result : -EFAULT;
}

int svm(KernelDriver &driver, uint64_t argument, size_t size) {
  kfd::Svm head;
  if (size < sizeof head)
    return -EINVAL;
  if (!copy_from_user(&head, argument, sizeof head))
    return -EFAULT;
  if ((size - sizeof head) / sizeof(kfd::SvmAttribute) < head.count)
    return -EINVAL;
  std::vector<kfd::SvmAttribute> attributes(head.count);
  const uint64_t behind = argument + sizeof head, bytes = head.count * sizeof attributes[0];
  if (!copy_from_user(attributes.data(), behind, bytes))
    return -EFAULT;
  const int result = driver.svm(head, attributes);
  return copy_to_user(behind, attributes.data(), bytes) ? result : -EFAULT;
}

int answer(KernelDriver driver, unsigned long request, uint64_t argument) {
  const size_t size = _IOC_SIZE(request);
  const auto ask = [&](auto method) { return with(driver, method, argument, size); };
  switch (_IOC_NR(request)) {
  case _IOC_NR(AMDKFD_IOC_GET_VERSION):
    return ask(&KernelDriver::get_version);
  case _IOC_NR(AMDKFD_IOC_CREATE_QUEUE):
    return ask(&KernelDriver::create_queue);
  case _IOC_NR(AMDKFD_IOC_DESTROY_QUEUE):
    return ask(&KernelDriver::destroy_queue);
  case _IOC_NR(AMDKFD_IOC_UPDATE_QUEUE):
    return ask(&KernelDriver::update_queue);
  case _IOC_NR(AMDKFD_IOC_SET_CU_MASK):
    return ask(&KernelDriver::set_cu_mask);
  case _IOC_NR(AMDKFD_IOC_ALLOC_QUEUE_GWS):
    return ask(&KernelDriver::alloc_queue_gws);
  case _IOC_NR(AMDKFD_IOC_GET_CLOCK_COUNTERS):
    return ask(&KernelDriver::get_clock_counters);
  case _IOC_NR(AMDKFD_IOC_GET_PROCESS_APERTURES_NEW):
    return ask(&KernelDriver::get_apertures);
  case _IOC_NR(AMDKFD_IOC_CREATE_EVENT):
    return ask(&KernelDriver::create_event);
  case _IOC_NR(AMDKFD_IOC_DESTROY_EVENT):
    return ask(&KernelDriver::destroy_event);
  case _IOC_NR(AMDKFD_IOC_SET_EVENT):
    return ask(&KernelDriver::set_event);
  case _IOC_NR(AMDKFD_IOC_RESET_EVENT):
    return ask(&KernelDriver::reset_event);
  case _IOC_NR(AMDKFD_IOC_WAIT_EVENTS):
    return ask(&KernelDriver::wait_events);
  case _IOC_NR(AMDKFD_IOC_SMI_EVENTS):
    return ask(&KernelDriver::watch_system);
  case _IOC_NR(AMDKFD_IOC_ALLOC_MEMORY_OF_GPU):
    return ask(&KernelDriver::alloc_memory);
  case _IOC_NR(AMDKFD_IOC_FREE_MEMORY_OF_GPU):
    return ask(&KernelDriver::free_memory);
  case _IOC_NR(AMDKFD_IOC_MAP_MEMORY_TO_GPU):
    return ask(&KernelDriver::map_memory);
  case _IOC_NR(AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU):
    return ask(&KernelDriver::unmap_memory);
  case kfd::kAvailableMemory:
    return ask(&KernelDriver::available_memory);
  case _IOC_NR(AMDKFD_IOC_GET_DMABUF_INFO):
    return ask(&KernelDriver::get_dmabuf_info);
  case _IOC_NR(AMDKFD_IOC_IMPORT_DMABUF):
    return ask(&KernelDriver::import_dmabuf);
  case kfd::kExportDmabuf:
    return ask(&KernelDriver::export_dmabuf);
  case kfd::kImportHandle:
    return ask(&KernelDriver::import_handle);
  case kfd::kExportHandle:
    return ask(&KernelDriver::export_handle);
  case _IOC_NR(AMDKFD_IOC_SVM):
    return svm(driver, argument, size);
  case _IOC_NR(AMDKFD_IOC_GET_TILE_CONFIG):
    return ask(&KernelDriver::get_tile_config);
  case _IOC_NR(AMDKFD_IOC_SET_XNACK_MODE):
    return ask(&KernelDriver::set_xnack_mode);
  // All memory here is coherent, the device handles traps itself, and a process has one address space.
  case _IOC_NR(AMDKFD_IOC_SET_MEMORY_POLICY):
  case _IOC_NR(AMDKFD_IOC_SET_SCRATCH_BACKING_VA):
  case _IOC_NR(AMDKFD_IOC_SET_TRAP_HANDLER):
  case _IOC_NR(AMDKFD_IOC_ACQUIRE_VM):
    return 0;
  case kfd::kRuntimeEnable:
    return ask(&KernelDriver::enable_runtime);
  case kfd::kDebugTrap:
    return ask(&KernelDriver::debug);
  default: // saved states of queues, checkpoints, performance counters, sampling: as a driver without them
    return -ENOTTY;
  }
}

} // namespace

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
  try {
    Process *process = Process::current();
    return process ? answer(KernelDriver(*process), request, reinterpret_cast<uint64_t>(argument)) : -EBADF;
  } catch (const Failure &problem) {
    std::fprintf(stderr, "luthier: %s\n", problem.what());
    return -EIO;
  } catch (...) {
    return -ENOMEM;
  }
}

void *device_mmap(void *address, size_t size, int protection, int flags, uint64_t offset) noexcept {
  try {
    if (offset >= kDoorbells) // they are never read
      return mmap(address, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (flags & MAP_FIXED), -1, 0);
    if (offset >= kGem) {
      Process *process = Process::current();
      if (!process)
        throw Failure("the driver is not open");
      std::lock_guard lock(process->mutex);
      const auto entry = process->gem.find((offset - kGem) >> kPageBits);
      if (entry != process->gem.end())
        return mmap(address, size, protection, flags, entry->second.object->file(0), 0);
    } else if (flags & MAP_FIXED)
      return address;         // the allocation has put the memory there
  } catch (const Failure &) { // NOLINT(bugprone-empty-catch): reported by the error number
  }
  errno = EINVAL;
  return MAP_FAILED;
}

long replace_addresses(const void *address, size_t size, const std::function<long()> &replace) noexcept {
  SvmRanges *ranges = SvmRanges::current();
  return ranges ? ranges->replace(reinterpret_cast<uint64_t>(address), size, replace) : replace();
}

} // namespace luthier
