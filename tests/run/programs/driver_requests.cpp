// What ROCr of ROCm 6 asks of the kernel driver when it begins, asked directly; needs no ROCm.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/kfd_ioctl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

namespace {

// Not in every header.
struct Available {
  uint64_t bytes;
  uint32_t gpu, padding;
};
constexpr unsigned long kAvailable = _IOWR('K', 0x23, Available);

int kfd;
uint32_t gpu;

long long available() {
  Available asked{0, gpu, 0};
  return ioctl(kfd, kAvailable, &asked) == 0 ? static_cast<long long>(asked.bytes) : -errno;
}

int allocate(uint64_t size, uint64_t &handle, uint32_t kind) {
  void *place = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  kfd_ioctl_alloc_memory_of_gpu_args asked{};
  asked.va_addr = reinterpret_cast<uint64_t>(place);
  asked.size = size;
  asked.gpu_id = gpu;
  asked.flags = kind | KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE;
  const int failed = ioctl(kfd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &asked) == 0 ? 0 : errno;
  handle = asked.handle;
  return failed;
}

}  // namespace

int main() {
  FILE *file = std::fopen("/sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id", "r");
  if (!file || std::fscanf(file, "%u", &gpu) != 1)
    return 2;
  kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  kfd_ioctl_get_version_args version{};
  if (kfd < 0 || ioctl(kfd, AMDKFD_IOC_GET_VERSION, &version))
    return 3;
  std::printf("version %u.%u\n", version.major_version, version.minor_version);
  const long long whole = available();
  std::printf("available %s\n", whole > 0 ? "yes" : std::strerror(static_cast<int>(-whole)));
  const uint64_t half = (static_cast<uint64_t>(whole) / 2 + 0x1FFFFF) & ~uint64_t{0x1FFFFF};
  uint64_t first = 0, second = 0, host = 0;
  std::printf("first half: %s\n", std::strerror(allocate(half, first, KFD_IOC_ALLOC_MEM_FLAGS_VRAM)));
  std::printf("that much less: %s\n", whole - available() == static_cast<long long>(half) ? "yes" : "no");
  std::printf("more than is left: %s\n", std::strerror(allocate(half + 0x200000, second, KFD_IOC_ALLOC_MEM_FLAGS_VRAM)));
  std::printf("of the host: %s\n", std::strerror(allocate(half + 0x200000, host, KFD_IOC_ALLOC_MEM_FLAGS_GTT)));
  kfd_ioctl_free_memory_of_gpu_args gone{first};
  std::printf("free: %s\n", std::strerror(ioctl(kfd, AMDKFD_IOC_FREE_MEMORY_OF_GPU, &gone) == 0 ? 0 : errno));
  std::printf("all back: %s\n", available() == whole ? "yes" : "no");
  kfd_ioctl_get_tile_config_args tiles{};
  tiles.gpu_id = gpu;
  const int asked = ioctl(kfd, AMDKFD_IOC_GET_TILE_CONFIG, &tiles);
  std::printf("tiles: %s\n", asked == 0 && tiles.gb_addr_config ? "known" : "not known");
  gpu = 0xFFFF;
  std::printf("of no device: %s\n", std::strerror(static_cast<int>(-available())));
}
