// The answers of /dev/kfd to one process, a method for each request. Each returns 0 or a negative error number, and may
// throw `Failure`.
#pragma once

#include <cstring>

#include "process.h"
#include "requests.h"

namespace luthier {

// Addresses of the devices' memory.
inline constexpr uint64_t kGpuMemoryBase = 1 << 16, kGpuMemoryLimit = (1ull << 47) - 1;

class KernelDriver {
public:
  explicit KernelDriver(Process &process) : process_(process), system_(process.system) {}

  // driver.cpp
  int get_version(kfd_ioctl_get_version_args &a);
  int get_clock_counters(kfd_ioctl_get_clock_counters_args &a);
  int get_apertures(kfd_ioctl_get_process_apertures_new_args &a);
  int get_tile_config(kfd_ioctl_get_tile_config_args &a);
  int set_xnack_mode(kfd_ioctl_set_xnack_mode_args &a);

  // queue_requests.cpp
  const BoxFields &box_fields(unsigned node) const; // of packets for its copy engines
  int create_queue(kfd::CreateQueue &a);
  int destroy_queue(kfd_ioctl_destroy_queue_args &a);
  int update_queue(kfd_ioctl_update_queue_args &a);
  int set_cu_mask(kfd_ioctl_set_cu_mask_args &a);
  int alloc_queue_gws(kfd_ioctl_alloc_queue_gws_args &a);
  int create_event(kfd_ioctl_create_event_args &a);
  int destroy_event(kfd_ioctl_destroy_event_args &a);
  int set_event(kfd_ioctl_set_event_args &a);
  int reset_event(kfd_ioctl_reset_event_args &a);
  int wait_events(kfd_ioctl_wait_events_args &a);
  int watch_system(kfd_ioctl_smi_events_args &a);

  // debug_requests.cpp
  int enable_runtime(kfd::RuntimeEnable &a);
  int debug(kfd::DebugTrap &a);

  // memory_requests.cpp
  int alloc_memory(kfd_ioctl_alloc_memory_of_gpu_args &a);
  int free_memory(kfd_ioctl_free_memory_of_gpu_args &a);
  int map_memory(kfd_ioctl_map_memory_to_gpu_args &a);
  int unmap_memory(kfd_ioctl_unmap_memory_from_gpu_args &a);
  int available_memory(kfd::AvailableMemory &a);
  int get_dmabuf_info(kfd_ioctl_get_dmabuf_info_args &a);
  int import_dmabuf(kfd_ioctl_import_dmabuf_args &a);
  int export_dmabuf(kfd::ExportDmabuf &a);
  int import_handle(kfd::ImportHandle &a);
  int export_handle(kfd::ExportHandle &a);
  // If attributes are asked for, they are written to `attributes`.
  int svm(const kfd::Svm &a, std::vector<kfd::SvmAttribute> &attributes);

private:
  // Return 0 if there is no such GPU.
  unsigned node_of(uint32_t gpu_id) const {
    using topology::kFirstGpuId;
    return gpu_id > kFirstGpuId && gpu_id < kFirstGpuId + system_.nodes() ? gpu_id - kFirstGpuId : 0;
  }
  static uint32_t gpu_id_of(unsigned node) { return topology::kFirstGpuId + node; }
  uint64_t keep(std::shared_ptr<BufferObject> object, uint64_t address, uint64_t gpu_address, bool is_private = false);
  int get_devices(kfd::DebugTrap &a) const;
  int change_mapping(uint64_t handle, uint64_t ids, uint32_t count, uint32_t &done, bool is_mapped);

  Process &process_;
  System &system_;
};

} // namespace luthier
