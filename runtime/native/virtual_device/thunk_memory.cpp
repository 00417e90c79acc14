// Memory: allocated, registered, mapped, shared, asked about.
#include <unistd.h>

#include "thunk.h"

using namespace luthier;

namespace {

std::vector<uint32_t> list(HSAuint64 count, const HSAuint32 *nodes) { return {nodes, nodes + count}; }

constexpr HSAuint32 kHandleMagic = 0x4C555448;

HSAKMT_STATUS map(System &system, void *address, const std::vector<uint32_t> &nodes, HSAuint64 *gpu_address) {
  const uint64_t seen = system.memory.map(number(address), nodes);
  if (gpu_address)
    *gpu_address = seen;
  return seen ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_INVALID_PARAMETER;
}

}  // namespace

extern "C" {

HSAKMT_STATUS hsaKmtAllocMemory(HSAuint32 node, HSAuint64 size, HsaMemFlags flags, void **address) {
  return guarded([&](System &system) {
    if (node >= system.nodes())
      return HSAKMT_STATUS_INVALID_NODE_UNIT;
    if (!address || !size)
      return HSAKMT_STATUS_INVALID_PARAMETER;
    if (flags.ui32.GDSMemory)
      return HSAKMT_STATUS_NOT_SUPPORTED;
    try {
      // What libhsakmt allocates on the device; it reserves addresses for scratch, and takes the rest from the host.
      const bool is_local = node && flags.ui32.NonPaged && !flags.ui32.Scratch;
      const uint64_t wanted = flags.ui32.FixedAddress ? number(*address) : 0;
      *address = system.memory.allocate(node, size, flags.Value, wanted, is_local);
    } catch (const Failure &) {
      return HSAKMT_STATUS_NO_MEMORY;
    }
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtFreeMemory(void *address, HSAuint64) {
  return guarded([&](System &system) {
    return system.memory.free(number(address)) ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_INVALID_PARAMETER;
  });
}

HSAKMT_STATUS hsaKmtMapMemoryToGPU(void *address, HSAuint64, HSAuint64 *gpu_address) {
  return guarded([&](System &system) { return map(system, address, system.all_gpus(), gpu_address); });
}

HSAKMT_STATUS hsaKmtMapMemoryToGPUNodes(void *address, HSAuint64, HSAuint64 *gpu_address, HsaMemMapFlags,
                                        HSAuint64 count, HSAuint32 *nodes) {
  return guarded([&](System &system) { return map(system, address, list(count, nodes), gpu_address); });
}

HSAKMT_STATUS hsaKmtUnmapMemoryToGPU(void *address) {
  return guarded([&](System &system) { return map(system, address, {}, nullptr); });
}

HSAKMT_STATUS hsaKmtRegisterMemoryWithFlags(void *address, HSAuint64 size, HsaMemFlags flags) {
  return guarded([&](System &system) {
    if (!address || !size)
      return HSAKMT_STATUS_INVALID_PARAMETER;
    system.memory.add_registered(number(address), size, flags.Value);
    return HSAKMT_STATUS_SUCCESS;
  });
}

// What another process shared is given back this way, too.
HSAKMT_STATUS hsaKmtDeregisterMemory(void *address) {
  return guarded([&](System &system) {
    const auto found = system.memory.find(number(address));
    const bool shared = found && found->kind == Kind::kShared && found->address == number(address);
    const bool gone =
        shared ? system.memory.free(number(address)) : system.memory.remove_registered(number(address));
    return gone ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_MEMORY_NOT_REGISTERED;
  });
}

HSAKMT_STATUS hsaKmtRegisterGraphicsHandleToNodes(HSAuint64, HsaGraphicsResourceInfo *, HSAuint64, HSAuint32 *) {
  return guarded([](System &) { return HSAKMT_STATUS_NOT_SUPPORTED; });  // there are no graphics
}

HSAKMT_STATUS hsaKmtShareMemory(void *address, HSAuint64 size, HsaSharedMemoryHandle *handle) {
  return guarded([&](System &system) {
    const auto found = system.memory.find(number(address));
    if (!found)
      return HSAKMT_STATUS_INVALID_PARAMETER;
    uint64_t name = found->name;
    if (!name) {
      const int fd = system.memory.make_file(number(address), size);
      name = system.service.share(fd, found->size);
      close(fd);
      system.memory.set_name(number(address), name);
    }
    const HSAuint32 words[8] = {kHandleMagic, static_cast<HSAuint32>(name), static_cast<HSAuint32>(name >> 32),
                                found->node};
    std::memcpy(*handle, words, sizeof words);
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtRegisterSharedHandle(const HsaSharedMemoryHandle *handle, void **address, HSAuint64 *size) {
  return guarded([&](System &system) {
    const HSAuint32 *words = *handle;
    if (words[0] != kHandleMagic || words[3] >= system.nodes())
      return HSAKMT_STATUS_INVALID_HANDLE;
    const uint64_t name = words[1] | uint64_t{words[2]} << 32;
    uint64_t bytes = 0;
    const int fd = system.service.attach(name, bytes);
    if (fd < 0)
      return HSAKMT_STATUS_INVALID_HANDLE;
    *address = system.memory.attach(words[3], fd, bytes, name);
    close(fd);
    *size = bytes;
    return HSAKMT_STATUS_SUCCESS;
  });
}

// Which nodes may see it is said when it is mapped.
HSAKMT_STATUS hsaKmtRegisterSharedHandleToNodes(const HsaSharedMemoryHandle *handle, void **address, HSAuint64 *size,
                                                HSAuint64, HSAuint32 *) {
  return hsaKmtRegisterSharedHandle(handle, address, size);
}

HSAKMT_STATUS hsaKmtQueryPointerInfo(const void *place, HsaPointerInfo *info) {
  return guarded([&](System &system) {
    *info = {};
    const auto found = system.memory.find(number(place));
    if (!found)
      return HSAKMT_STATUS_ERROR;
    constexpr HSA_POINTER_TYPE kTypes[] = {HSA_POINTER_ALLOCATED, HSA_POINTER_REGISTERED_USER,
                                           HSA_POINTER_REGISTERED_SHARED};
    info->Type = kTypes[static_cast<int>(found->kind)];
    info->Node = found->node;
    info->MemFlags.Value = found->flags;
    info->CPUAddress = reinterpret_cast<void *>(found->address);
    info->GPUAddress = found->gpu_address;
    info->SizeInBytes = found->size;
    info->UserData = found->user_data;
    // The caller copies the list at once; its next question on this thread replaces it.
    static thread_local std::vector<uint32_t> nodes;
    nodes = found->mapped;
    info->NMappedNodes = nodes.size();
    info->MappedNodes = nodes.data();
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtSetMemoryUserData(const void *place, void *data) {
  return guarded([&](System &system) {
    return system.memory.set_user_data(number(place), data) ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_ERROR;
  });
}

// All memory here is coherent, whatever the policy.
HSAKMT_STATUS hsaKmtSetMemoryPolicy(HSAuint32 node, HSAuint32, HSAuint32, void *, HSAuint64) {
  return guarded([&](System &system) {
    return node < system.nodes() ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_INVALID_NODE_UNIT;
  });
}

// Migration between host and device needs retry of memory faults.
HSAKMT_STATUS hsaKmtSVMGetAttr(void *, HSAuint64, unsigned, HSA_SVM_ATTRIBUTE *) {
  return guarded([](System &) { return HSAKMT_STATUS_NOT_SUPPORTED; });
}

HSAKMT_STATUS hsaKmtSVMSetAttr(void *, HSAuint64, unsigned, HSA_SVM_ATTRIBUTE *) {
  return guarded([](System &) { return HSAKMT_STATUS_NOT_SUPPORTED; });
}
}
