// Memory: allocated, mapped to devices, exported and imported, and ranges of the process's own.
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel_driver.h"
#include "user_memory.h"

namespace luthier {

namespace {

constexpr uint32_t kShareMagic = 0x4C555448;

// Map memory, or with PROT_NONE none, at addresses of the process; return false if that fails.
bool put(uint64_t address, uint64_t size, int protection) {
  return mmap(reinterpret_cast<void *>(address), size, protection,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool is_of_host(const BufferObject &object) { return object.flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR; }

bool is_private(uint32_t flags) {
  return flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM && !(flags & KFD_IOC_ALLOC_MEM_FLAGS_COHERENT);
}

// Return the kind of fine-grained memory that flags ask for; 0: coarse-grained memory.
uint64_t fine_of(uint32_t flags) {
  if (!(flags & (KFD_IOC_ALLOC_MEM_FLAGS_COHERENT | KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED)))
    return wire::kFineNone;
  return flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM ? wire::kFineDevice : wire::kFineHost;
}

} // namespace

// Memory without an address is mapped by the render device's handles to it.
int KernelDriver::alloc_memory(kfd_ioctl_alloc_memory_of_gpu_args &a) {
  const unsigned node = node_of(a.gpu_id);
  const bool is_of_host = a.flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR;
  if (!node || !a.size || (is_of_host && !a.va_addr))
    return -EINVAL;
  auto object = std::make_shared<BufferObject>(system_, node, a.size, a.flags);
  if (is_of_host) {
    a.handle = keep(std::move(object), a.mmap_offset, a.va_addr);
    return 0;
  }
  if (a.va_addr && !put(a.va_addr, a.size, PROT_READ | PROT_WRITE))
    return -ENOMEM;
  a.handle = keep(std::move(object), a.va_addr, a.va_addr, is_private(a.flags));
  a.mmap_offset = a.handle << kPageBits;
  return 0;
}

uint64_t KernelDriver::keep(std::shared_ptr<BufferObject> object, uint64_t address, uint64_t gpu_address,
                            bool is_private) {
  if (address == gpu_address)
    process_.svm.forget(address, object->size);
  if (address)
    system_.memory.adopt({address, object->size, gpu_address, {}, is_private, fine_of(object->flags)});
  std::lock_guard lock(process_.mutex);
  process_.buffers.emplace(process_.next_handle, Buffer{std::move(object), address, gpu_address, {}});
  return process_.next_handle++;
}

int KernelDriver::free_memory(kfd_ioctl_free_memory_of_gpu_args &a) {
  std::lock_guard lock(process_.mutex);
  const auto entry = process_.buffers.find(a.handle);
  if (entry == process_.buffers.end())
    return -EINVAL;
  const Buffer &buffer = entry->second;
  system_.memory.drop(buffer.address, buffer.gpu_address);
  if (buffer.address && !is_of_host(*buffer.object)) // the addresses stay the process's
    put(buffer.address, buffer.object->size, PROT_NONE);
  process_.buffers.erase(entry);
  return 0;
}

int KernelDriver::map_memory(kfd_ioctl_map_memory_to_gpu_args &a) {
  return change_mapping(a.handle, a.device_ids_array_ptr, a.n_devices, a.n_success, true);
}

int KernelDriver::unmap_memory(kfd_ioctl_unmap_memory_from_gpu_args &a) {
  return change_mapping(a.handle, a.device_ids_array_ptr, a.n_devices, a.n_success, false);
}

int KernelDriver::change_mapping(uint64_t handle, uint64_t ids, uint32_t count, uint32_t &done, bool is_mapped) {
  std::lock_guard lock(process_.mutex);
  const auto entry = process_.buffers.find(handle);
  if (entry == process_.buffers.end() || !ids)
    return -EINVAL;
  Buffer &buffer = entry->second;
  for (; done < count; ++done) {
    uint32_t id = 0;
    if (!copy_from_user(&id, ids + done * sizeof id, sizeof id))
      return -EFAULT;
    const unsigned node = node_of(id);
    if (!node)
      return -EINVAL;
    std::erase(buffer.mapped, node);
    if (is_mapped)
      buffer.mapped.push_back(node);
  }
  return system_.memory.set_mapped(buffer.address, buffer.gpu_address, buffer.mapped) ? 0 : -EINVAL;
}

int KernelDriver::available_memory(kfd::AvailableMemory &a) {
  const unsigned node = node_of(a.gpu_id);
  if (!node)
    return -EINVAL;
  a.available = system_.memory.available(node);
  return 0;
}

int KernelDriver::get_dmabuf_info(kfd_ioctl_get_dmabuf_info_args &a) {
  const auto object = process_.exported.import_file(system_, a.dmabuf_fd);
  if (!object)
    return -EINVAL;
  a.size = object->size;
  a.gpu_id = gpu_id_of(object->node);
  a.flags = object->flags;
  a.metadata_size = 0;
  return 0;
}

int KernelDriver::import_dmabuf(kfd_ioctl_import_dmabuf_args &a) {
  auto object = node_of(a.gpu_id) ? process_.exported.import_file(system_, a.dmabuf_fd) : nullptr;
  if (!object)
    return -EINVAL;
  if (a.va_addr)
    object->map(a.va_addr);
  a.handle = keep(std::move(object), a.va_addr, a.va_addr);
  return 0;
}

int KernelDriver::export_dmabuf(kfd::ExportDmabuf &a) {
  std::lock_guard lock(process_.mutex);
  const auto entry = process_.buffers.find(a.handle);
  if (entry == process_.buffers.end() || is_of_host(*entry->second.object))
    return -EINVAL;
  system_.memory.share(entry->second.address, entry->second.gpu_address);
  const int file = process_.exported.export_file(entry->second.object, entry->second.address, a.flags & O_CLOEXEC);
  if (file < 0)
    return -EMFILE;
  a.fd = file;
  return 0;
}

int KernelDriver::export_handle(kfd::ExportHandle &a) {
  std::lock_guard lock(process_.mutex);
  const auto entry = process_.buffers.find(a.handle);
  if (entry == process_.buffers.end() || is_of_host(*entry->second.object))
    return -EINVAL;
  const Buffer &buffer = entry->second;
  system_.memory.share(buffer.address, buffer.gpu_address);
  const uint64_t name = buffer.object->name(buffer.address);
  const uint32_t words[4] = {kShareMagic, static_cast<uint32_t>(name), static_cast<uint32_t>(name >> 32),
                             gpu_id_of(buffer.object->node)};
  std::copy_n(words, 4, a.share);
  a.flags = buffer.object->flags;
  return 0;
}

int KernelDriver::import_handle(kfd::ImportHandle &a) {
  if (a.share[0] != kShareMagic || !node_of(a.share[3]))
    return -EINVAL;
  const int file = system_.service.ask(wire::Attach{a.share[1] | uint64_t{a.share[2]} << 32}).memory.fd;
  auto object = process_.exported.import_file(system_, file);
  close(file);
  if (!object)
    return -EINVAL;
  object->map(a.address);
  a.gpu_id = a.share[3];
  a.flags = object->flags;
  a.handle = keep(std::move(object), a.address, a.address);
  a.mmap_offset = a.handle << kPageBits;
  return 0;
}

int KernelDriver::svm(const kfd::Svm &a, std::vector<kfd::SvmAttribute> &attributes) {
  if (!a.start || !a.size || a.start % kPageSize || a.size % kPageSize)
    return -EINVAL;
  // Programs name devices by the driver's numbers; 0 is the host, and all ones is no location.
  const auto names_device = [](const kfd::SvmAttribute &attribute) {
    return attribute.type <= KFD_IOCTL_SVM_ATTR_NO_ACCESS;
  };
  const auto is_location = [](uint32_t value) {
    return value == KFD_IOCTL_SVM_LOCATION_SYSMEM || value == KFD_IOCTL_SVM_LOCATION_UNDEFINED;
  };
  std::vector<kfd::SvmAttribute> list = attributes;
  const bool is_set = a.operation == KFD_IOCTL_SVM_OP_SET_ATTR;
  if (!is_set && a.operation != KFD_IOCTL_SVM_OP_GET_ATTR)
    return -EINVAL;
  for (kfd::SvmAttribute &attribute : list) {
    const bool is_place = attribute.type <= KFD_IOCTL_SVM_ATTR_PREFETCH_LOC;
    if (!names_device(attribute) || (is_place && (!is_set || is_location(attribute.value))))
      continue;
    attribute.value = node_of(attribute.value);
    if (!attribute.value)
      return -EINVAL;
  }
  if (is_set)
    return process_.svm.set(a.start, a.size, list);
  const int result = process_.svm.get(a.start, a.size, list);
  for (uint32_t index = 0; index < a.count; ++index) {
    kfd::SvmAttribute &attribute = list[index];
    if (names_device(attribute) && !is_location(attribute.value))
      attribute.value = gpu_id_of(attribute.value);
    if (result == 0)
      attributes[index] = attribute;
  }
  return result;
}

} // namespace luthier
