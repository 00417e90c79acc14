// The render device: enough for libdrm_amdgpu, by which libhsakmt opens it and learns a device's name. Memory is the
// other device's business.
//
// Numbers and layouts are those of drm.h and amdgpu_drm.h, which distributions ship apart.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <linux/ioctl.h>

#include "driver.h"
#include "chips.h"
#include "system.h"

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

// What is asked for, and where the answer is to be.
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

constexpr unsigned kVersion = 0x00, kClient = 0x05, kInfo = 0x45;
constexpr unsigned kAcceleration = 0x00, kDevice = 0x16;

// Copies a text, as long as there is room, and tells its size.
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

}  // namespace

int render_ioctl(unsigned gpu, unsigned long request, void *argument) noexcept {
  System *system = System::current();
  if (!system || gpu >= system->gpus().size())
    return -ENODEV;
  switch (_IOC_NR(request)) {
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
    return answer(system->gpus()[gpu], *static_cast<Question *>(argument));
  default:
    return -ENOTTY;
  }
}

}  // namespace luthier
