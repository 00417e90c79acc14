// The render device: the requests of libdrm_amdgpu, through which libhsakmt opens it and gets the name of a device, and
// ROCr maps exported memory (dma-buf) at addresses of its choice.
//
// Numbers and layouts are those of drm.h and amdgpu_drm.h, which distributions ship separately.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/mman.h>

#include "chips.h"
#include "driver.h"
#include "process.h"

namespace luthier {

namespace {

struct Version {
  int major, minor, patch;
  size_t name_size;
  char *name;
  size_t date_size;
  char *date;
  size_t description_size;
  char *description;
};

struct Client {
  int index, is_authenticated;
  unsigned long process, user, magic, requests;
};

// A query, and where to write the answer.
struct Question {
  uint64_t answer;
  uint32_t size, query;
  char more[16];
};

struct Device {
  uint32_t device_id, chip_revision, external_revision, pci_revision, family;
  uint32_t engines, arrays, counter_khz;
  uint64_t engine_khz, memory_khz;
  uint32_t units, always_on, bitmap[4][4], backends, backend_count, contexts, pci_generation;
  uint64_t flags, address_begin, address_end;
  uint32_t address_alignment, fragment_size, page_size;
};

struct CloseHandle {
  uint32_t handle, reserved;
};

// A handle, and a file that is exported from it or imported.
struct SharedHandle {
  uint32_t handle, flags;
  int32_t file;
};

// The handle to map, or the offset by which it is mapped.
union MapOffset {
  uint32_t handle;
  uint64_t offset;
};

// A part of a buffer object at an address of the device.
struct MapAddress {
  uint32_t handle, reserved, operation, flags;
  uint64_t address, offset, size;
};
enum Operation : uint32_t { kMap = 1, kUnmap = 2, kClear = 3, kReplace = 4 };

// The metadata that a program sets for an object.
struct Metadata {
  uint32_t handle, operation;
  struct {
    uint64_t flags, tiling;
    uint32_t size, words[64];
  } text;
};
enum MetadataOperation : uint32_t { kSetMetadata = 1, kGetMetadata = 2 };

// A query about the creation of an object.
struct MadeQuestion {
  uint32_t handle, operation;
  uint64_t answer;
};
struct Made {
  uint64_t size, alignment, domains, flags;
};
constexpr uint32_t kGetMade = 0;
constexpr uint64_t kHostDomain = 2, kDeviceDomain = 4;

constexpr unsigned kVersion = 0x00, kClient = 0x05, kCloseHandle = 0x09, kExport = 0x2D, kImport = 0x2E,
                   kMapOffset = 0x41, kInfo = 0x45, kMetadata = 0x46, kMapAddress = 0x48, kMade = 0x50;
constexpr unsigned kAcceleration = 0x00, kDevice = 0x16;

// Copy a text, as long as there is room, and report its size.
void give(const char *text, char *to, size_t &size) {
  const size_t whole = std::strlen(text);
  if (to)
    std::memcpy(to, text, std::min(size, whole));
  size = whole;
}

int answer(const Gpu &gpu, const Question &question) {
  char *to = reinterpret_cast<char *>(question.answer);
  if (!to)
    return -EINVAL;
  std::memset(to, 0, question.size);
  if (question.query == kAcceleration) {
    const uint32_t yes = 1;
    std::memcpy(to, &yes, std::min<size_t>(sizeof yes, question.size));
  }
  if (question.query == kDevice) {
    Device device{};
    device.device_id = gpu.device_id;
    const Chip chip = chip_of(gpu);
    device.family = chip.family;
    device.external_revision = chip.revision;
    device.engines = device.arrays = 1;
    device.counter_khz = 100'000;
    device.engine_khz = gpu.clock_mhz * 1000;
    device.units = gpu.units;
    device.address_begin = 2 << 20;
    device.address_end = 1ull << 47;
    device.address_alignment = device.fragment_size = device.page_size = 4096;
    std::memcpy(to, &device, std::min<size_t>(sizeof device, question.size));
  }
  return 0;
}

// The requests about handles of one render device.
class Gem {
public:
  Gem(Process &process, unsigned gpu) : process_(process), gpu_(gpu), lock_(process.mutex) {}

  // An object has one handle, however often it is imported.
  int import_handle(SharedHandle &a) {
    const auto object = process_.exported.import_file(process_.system, a.file);
    if (!object)
      return -EBADF;
    uint32_t next = 1;
    for (auto at = process_.gem.lower_bound(gem_key(gpu_, 0)); at != process_.gem.end() && at->first >> 32 == gpu_;
         ++at) {
      if (at->second.object == object) {
        a.handle = static_cast<uint32_t>(at->first);
        return 0;
      }
      next = static_cast<uint32_t>(at->first) + 1;
    }
    a.handle = next;
    process_.gem[gem_key(gpu_, next)].object = object;
    return 0;
  }

  int export_handle(SharedHandle &a) {
    GemHandle *handle = find(a.handle);
    if (!handle)
      return -ENOENT;
    a.file = process_.exported.export_file(handle->object, 0, a.flags & O_CLOEXEC);
    return a.file < 0 ? -EMFILE : 0;
  }

  int close_handle(CloseHandle &a) {
    GemHandle *handle = find(a.handle);
    if (!handle)
      return -EINVAL;
    for (const GemHandle::Part &part : handle->parts)
      process_.system.memory.drop(handle->address + part.offset, part.gpu_address);
    if (handle->address)
      munmap(reinterpret_cast<void *>(handle->address), handle->object->size);
    process_.gem.erase(gem_key(gpu_, a.handle));
    return 0;
  }

  int map_offset(MapOffset &a) {
    if (!find(a.handle))
      return -ENOENT;
    a.offset = kGem + (gem_key(gpu_, a.handle) << kPageBits);
    return 0;
  }

  int metadata(Metadata &a) {
    GemHandle *handle = find(a.handle);
    if (!handle)
      return -ENOENT;
    if (a.operation == kSetMetadata && a.text.size <= sizeof a.text.words) {
      handle->object->set_metadata({reinterpret_cast<const char *>(&a.text), sizeof a.text});
      return 0;
    }
    if (a.operation != kGetMetadata)
      return -EINVAL;
    const std::string known = handle->object->metadata();
    a.text = {};
    std::memcpy(&a.text, known.data(), std::min(known.size(), sizeof a.text));
    return 0;
  }

  int made(MadeQuestion &a) {
    GemHandle *handle = find(a.handle);
    if (!handle || !a.answer)
      return -ENOENT;
    if (a.operation != kGetMade)
      return -EINVAL;
    const bool is_local = handle->object->flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM;
    *reinterpret_cast<Made *>(a.answer) = {handle->object->size, kPageSize, is_local ? kDeviceDomain : kHostDomain, 0};
    return 0;
  }

  int map_address(MapAddress &a) {
    if (!a.size || a.address % kPageSize || a.offset % kPageSize || a.size % kPageSize)
      return -EINVAL;
    if (a.operation == kClear || a.operation == kReplace)
      clear(a.address, a.size);
    if (a.operation == kClear)
      return 0;
    GemHandle *handle = find(a.handle);
    if (!handle)
      return -ENOENT;
    if (a.operation == kUnmap)
      return unmap(*handle, a.address) ? 0 : -ENOENT;
    if ((a.operation != kMap && a.operation != kReplace) || a.offset + a.size > handle->object->size)
      return -EINVAL;
    if (is_taken(a.address, a.size))
      return -EINVAL;
    if (!handle->address)
      handle->address = handle->object->map(0);
    handle->parts.push_back({a.address, a.offset, a.size});
    process_.system.memory.adopt({handle->address + a.offset, a.size, a.address, {static_cast<uint32_t>(gpu_ + 1)}});
    return 0;
  }

private:
  GemHandle *find(uint32_t handle) {
    const auto entry = process_.gem.find(gem_key(gpu_, handle));
    return entry == process_.gem.end() ? nullptr : &entry->second;
  }

  bool unmap(GemHandle &handle, uint64_t address) {
    const auto part = std::find_if(handle.parts.begin(), handle.parts.end(),
                                   [&](const GemHandle::Part &part) { return part.gpu_address == address; });
    if (part == handle.parts.end())
      return false;
    process_.system.memory.drop(handle.address + part->offset, address);
    handle.parts.erase(part);
    return true;
  }

  template <typename Work> void each_part(Work work) {
    for (auto at = process_.gem.lower_bound(gem_key(gpu_, 0)); at != process_.gem.end() && at->first >> 32 == gpu_;
         ++at)
      for (const GemHandle::Part &part : std::vector(at->second.parts))
        work(at->second, part);
  }

  bool is_taken(uint64_t address, uint64_t size) {
    bool is_taken = false;
    each_part([&](GemHandle &, const GemHandle::Part &part) {
      is_taken |= part.gpu_address < address + size && address < part.gpu_address + part.size;
    });
    return is_taken;
  }

  // Parts that lie within these addresses; ROCr maps and unmaps whole ones.
  void clear(uint64_t address, uint64_t size) {
    each_part([&](GemHandle &handle, const GemHandle::Part &part) {
      if (part.gpu_address >= address && part.gpu_address + part.size <= address + size)
        unmap(handle, part.gpu_address);
    });
  }

  Process &process_;
  uint64_t gpu_;
  std::lock_guard<std::mutex> lock_;
};

int answer(Process &process, unsigned gpu, unsigned number, void *argument) {
  switch (number) {
  case kVersion: {
    auto &version = *static_cast<Version *>(argument);
    version.major = 3;
    version.minor = 49;
    version.patch = 0;
    give("amdgpu", version.name, version.name_size);
    give("20150101", version.date, version.date_size);
    give("Luthier's virtual devices", version.description, version.description_size);
    return 0;
  }
  case kClient:
    static_cast<Client *>(argument)->is_authenticated = 1;
    return 0;
  case kInfo:
    return answer(process.system.gpus()[gpu], *static_cast<Question *>(argument));
  case kCloseHandle:
    return Gem(process, gpu).close_handle(*static_cast<CloseHandle *>(argument));
  case kExport:
    return Gem(process, gpu).export_handle(*static_cast<SharedHandle *>(argument));
  case kImport:
    return Gem(process, gpu).import_handle(*static_cast<SharedHandle *>(argument));
  case kMapOffset:
    return Gem(process, gpu).map_offset(*static_cast<MapOffset *>(argument));
  case kMetadata:
    return Gem(process, gpu).metadata(*static_cast<Metadata *>(argument));
  case kMade:
    return Gem(process, gpu).made(*static_cast<MadeQuestion *>(argument));
  case kMapAddress:
    return Gem(process, gpu).map_address(*static_cast<MapAddress *>(argument));
  default:
    return -ENOTTY;
  }
}

} // namespace

int render_ioctl(unsigned gpu, unsigned long request, void *argument) noexcept {
  try {
    Process *process = Process::current();
    if (!process || gpu >= process->system.gpus().size())
      return -ENODEV;
    return answer(*process, gpu, _IOC_NR(request), argument);
  } catch (const Failure &problem) {
    std::fprintf(stderr, "luthier: %s\n", problem.what());
    return -EIO;
  } catch (...) {
    return -ENOMEM;
  }
}

} // namespace luthier
