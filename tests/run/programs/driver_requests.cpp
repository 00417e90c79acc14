// What ROCr asks of the kernel driver, and what only few programs do, asked directly; needs no ROCm.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/kfd_ioctl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <vector>

namespace {

// Not in every header.
struct Available {
  uint64_t bytes;
  uint32_t gpu, padding;
};
struct Export {
  uint64_t handle;
  uint32_t flags, file;
};
struct Queue {
  uint64_t ring, write, read, doorbell;
  uint32_t size, gpu, type, percentage, priority, id;
  uint64_t interrupts, interrupts_size, saved;
  uint32_t saved_size, stack_size, engine, padding;
};
struct Debug {
  uint64_t words[8];
};
constexpr unsigned long kAvailable = _IOWR('K', 0x23, Available), kExport = _IOWR('K', 0x24, Export),
                        kCreateQueue = _IOWR('K', 0x02, Queue), kEnable = _IOWR('K', 0x25, Debug),
                        kDebug = _IOWR('K', 0x26, Debug), kSample = _IOWR('K', 0x85, Debug);

int kfd;
uint32_t gpu;

template <typename Argument> int ask(unsigned long request, Argument &argument) {
  return ioctl(kfd, request, &argument) == 0 ? 0 : errno;
}

void say(const char *what, int failed) { std::printf("%s: %s\n", what, std::strerror(failed)); }
void tell(const char *what, bool is_so) { std::printf("%s: %s\n", what, is_so ? "yes" : "no"); }

long long available() {
  Available asked{0, gpu, 0};
  const int failed = ask(kAvailable, asked);
  return failed ? -failed : static_cast<long long>(asked.bytes);
}

void *reserve(uint64_t size) {
  return mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

int allocate(uint64_t size, uint64_t &handle, uint32_t kind, void *place) {
  kfd_ioctl_alloc_memory_of_gpu_args asked{};
  asked.va_addr = reinterpret_cast<uint64_t>(place);
  asked.size = size;
  asked.gpu_id = gpu;
  asked.flags = kind | KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE;
  const int failed = ask(AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, asked);
  handle = asked.handle;
  return failed;
}

int release(uint64_t handle) {
  kfd_ioctl_free_memory_of_gpu_args gone{handle};
  return ask(AMDKFD_IOC_FREE_MEMORY_OF_GPU, gone);
}

void memory() {
  const long long whole = available();
  std::printf("available: %s\n", whole > 0 ? "yes" : std::strerror(static_cast<int>(-whole)));
  const uint64_t half = (static_cast<uint64_t>(whole) / 2 + 0x1FFFFF) & ~uint64_t{0x1FFFFF}, more = half + 0x200000;
  uint64_t first = 0, second = 0, host = 0;
  say("first half", allocate(half, first, KFD_IOC_ALLOC_MEM_FLAGS_VRAM, reserve(half)));
  tell("that much less", whole - available() == static_cast<long long>(half));
  say("more than is left", allocate(more, second, KFD_IOC_ALLOC_MEM_FLAGS_VRAM, reserve(more)));
  say("of the host", allocate(more, host, KFD_IOC_ALLOC_MEM_FLAGS_GTT, reserve(more)));
  say("free", release(first));
  tell("all back", available() == whole);
}

// A handle of the render device to exported memory: one, however often it is imported; with what is written down about it,
// and a mapping of its own.
void render_handle(int file, const uint32_t *place, uint64_t size) {
  const int render = open("/dev/dri/renderD128", O_RDWR);
  struct {
    uint32_t handle, flags;
    int32_t file;
  } first{0, 0, file}, second{0, 0, file};
  constexpr unsigned long kImport = _IOWR('d', 0x2E, first);
  tell("one handle", ioctl(render, kImport, &first) == 0 && ioctl(render, kImport, &second) == 0 && first.handle &&
                         first.handle == second.handle);
  struct {
    uint32_t handle, operation;
    uint64_t flags, tiling;
    uint32_t size, words[64];
  } written{first.handle, 1, 0, 0, 4, {815}}, read{first.handle, 2};
  constexpr unsigned long kMetadata = _IOWR('d', 0x46, written);
  ioctl(render, kMetadata, &written);
  tell("metadata", ioctl(render, kMetadata, &read) == 0 && read.size == 4 && read.words[0] == 815);
  uint64_t made[4] = {};
  struct {
    uint32_t handle, operation;
    uint64_t answer;
  } question{first.handle, 0, reinterpret_cast<uint64_t>(made)};
  tell("as it was made", ioctl(render, _IOWR('d', 0x50, question), &question) == 0 && made[0] == size && made[2] == 4);
  uint64_t offset = first.handle;
  ioctl(render, _IOWR('d', 0x41, offset), &offset);
  auto *again = static_cast<uint32_t *>(mmap(nullptr, size, PROT_READ, MAP_SHARED, render, offset));
  tell("mapped again", again != MAP_FAILED && again[7] == place[7]);
  munmap(again, size);
  uint64_t gone = first.handle;
  tell("closed", ioctl(render, _IOW('d', 0x09, gone), &gone) == 0 && ioctl(render, kMetadata, &read) != 0);
  close(render);
}

// Exported memory: the same bytes by both of its addresses, counted until the last of its handles is gone.
void dmabuf() {
  const uint64_t size = 0x200000;
  const long long whole = available();
  auto *first = static_cast<uint32_t *>(reserve(size)), *second = static_cast<uint32_t *>(reserve(size));
  uint64_t handle = 0;
  allocate(size, handle, KFD_IOC_ALLOC_MEM_FLAGS_VRAM, first);
  first[7] = 4711;
  Export exported{handle, O_CLOEXEC, 0};
  say("export", ask(kExport, exported));
  kfd_ioctl_get_dmabuf_info_args info{};
  info.dmabuf_fd = exported.file;
  say("information", ask(AMDKFD_IOC_GET_DMABUF_INFO, info));
  tell("its size and device", info.size == size && info.gpu_id == gpu && info.flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM);
  kfd_ioctl_import_dmabuf_args import{reinterpret_cast<uint64_t>(second), 0, gpu, exported.file};
  say("import", ask(AMDKFD_IOC_IMPORT_DMABUF, import));
  second[8] = 4712;
  tell("the same memory", second[7] == 4711 && first[8] == 4712);
  tell("counted once", whole - available() == static_cast<long long>(size));
  render_handle(exported.file, first, size);
  release(handle);
  tell("still there", second[7] == 4711 && whole - available() == static_cast<long long>(size));
  release(import.handle);
  close(exported.file);
  tell("given back", available() == whole);
  info.dmabuf_fd = 0;
  say("of another file", ask(AMDKFD_IOC_GET_DMABUF_INFO, info));
  say("without an address", allocate(size, handle, KFD_IOC_ALLOC_MEM_FLAGS_VRAM, nullptr));
  release(handle);
}

int svm(uint32_t operation, void *place, uint64_t size, std::vector<kfd_ioctl_svm_attribute> &list) {
  struct {
    uint64_t start, size;
    uint32_t operation, count;
    kfd_ioctl_svm_attribute attributes[4];
  } asked{reinterpret_cast<uint64_t>(place), size, operation, static_cast<uint32_t>(list.size()), {}};
  std::copy(list.begin(), list.end(), asked.attributes);
  const size_t bytes = list.size() * sizeof(kfd_ioctl_svm_attribute);
  const int failed = ask(AMDKFD_IOC_SVM + (bytes << _IOC_SIZESHIFT), asked);
  std::copy_n(asked.attributes, list.size(), list.begin());
  return failed;
}

void shared_virtual_memory() {
  constexpr uint64_t kPage = 4096, kSize = 4 * kPage;
  char *place = static_cast<char *>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<kfd_ioctl_svm_attribute> all{{KFD_IOCTL_SVM_ATTR_PREFERRED_LOC, gpu},
                                           {KFD_IOCTL_SVM_ATTR_ACCESS, gpu},
                                           {KFD_IOCTL_SVM_ATTR_GRANULARITY, 4}};
  const auto get = [&](uint64_t first, uint64_t pages) {
    std::vector<kfd_ioctl_svm_attribute> asked{{KFD_IOCTL_SVM_ATTR_PREFERRED_LOC, 0},
                                               {KFD_IOCTL_SVM_ATTR_ACCESS, gpu},
                                               {KFD_IOCTL_SVM_ATTR_GRANULARITY, 0},
                                               {KFD_IOCTL_SVM_ATTR_SET_FLAGS, 0}};
    const int failed = svm(KFD_IOCTL_SVM_OP_GET_ATTR, place + first * kPage, pages * kPage, asked);
    if (failed)
      return std::printf("%s\n", std::strerror(failed));
    const uint32_t at = asked[0].value;
    return std::printf("%s, access %u, granularity %u, flags %u\n", at == gpu ? "device" : at == ~0u ? "none" : "other",
                       asked[1].type, asked[2].value, asked[3].value);
  };
  get(0, 4);
  say("attributes", svm(KFD_IOCTL_SVM_OP_SET_ATTR, place + kPage, 3 * kPage, all));
  get(1, 3);
  std::vector<kfd_ioctl_svm_attribute> less{{KFD_IOCTL_SVM_ATTR_NO_ACCESS, gpu},
                                            {KFD_IOCTL_SVM_ATTR_CLR_FLAGS, KFD_IOCTL_SVM_FLAG_COHERENT}};
  say("of a part", svm(KFD_IOCTL_SVM_OP_SET_ATTR, place + 2 * kPage, kPage, less));
  get(2, 1);
  get(1, 3);
  munmap(place + kPage + 1, 2 * kPage); // in vain, as what follows
  munmap(place + kPage, 0);
  mmap(place + kPage, 2 * kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0);
  get(1, 3);
  munmap(place + kPage, 2 * kPage);
  get(1, 3);
  mmap(place + kPage, 2 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  get(1, 2); // forgotten
  get(3, 1);
  say("unaligned", svm(KFD_IOCTL_SVM_OP_SET_ATTR, place + 1, kPage, all));
  all[0].value = 12345;
  say("of no device", svm(KFD_IOCTL_SVM_OP_SET_ATTR, place, kPage, all));
}

// An event that was raised before somebody waits for it with the age that it had is there at once.
void ages() {
  kfd_ioctl_create_event_args made{};
  made.event_type = KFD_IOC_EVENT_SIGNAL;
  made.auto_reset = 1;
  ask(AMDKFD_IOC_CREATE_EVENT, made);
  uint64_t data[6] = {}; // of kfd_event_data: the age, and behind the pointer to more the event
  static_assert(sizeof data == sizeof(kfd_event_data));
  const auto wait = [&](uint64_t age) {
    data[0] = age;
    data[5] = made.event_id;
    kfd_ioctl_wait_events_args asked{reinterpret_cast<uint64_t>(data), 1, 1, 50, 0};
    ask(AMDKFD_IOC_WAIT_EVENTS, asked);
    std::printf("%s, age %u\n", asked.wait_result == KFD_IOC_WAIT_RESULT_COMPLETE ? "complete" : "time is over",
                static_cast<unsigned>(data[0]));
  };
  kfd_ioctl_set_event_args set{made.event_id, 0};
  wait(1);
  ask(AMDKFD_IOC_SET_EVENT, set);
  wait(1);
  wait(1);
  wait(2);
  wait(0);
}

void queues() {
  static uint64_t ring[512], indices[2];
  Queue asked{};
  asked.ring = reinterpret_cast<uint64_t>(ring);
  asked.write = reinterpret_cast<uint64_t>(indices);
  asked.read = reinterpret_cast<uint64_t>(indices + 1);
  asked.size = sizeof ring;
  asked.gpu = gpu;
  asked.type = 4; // of the copy engine that is named
  asked.engine = 1;
  say("copy engine 1", ask(kCreateQueue, asked));
  kfd_ioctl_destroy_queue_args gone{asked.id, 0};
  say("destroyed", ask(AMDKFD_IOC_DESTROY_QUEUE, gone));
  asked.engine = 99;
  say("copy engine 99", ask(kCreateQueue, asked));
}

void system_events() {
  kfd_ioctl_smi_events_args asked{gpu, 0};
  say("system events", ask(AMDKFD_IOC_SMI_EVENTS, asked));
  const uint64_t mask = KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_VMFAULT);
  tell("a mask", write(asked.anon_fd, &mask, sizeof mask) == sizeof mask);
  pollfd waiting{static_cast<int>(asked.anon_fd), POLLIN, 0};
  tell("none yet", poll(&waiting, 1, 10) == 0);
}

void refused() {
  kfd_ioctl_set_xnack_mode_args mode{-1};
  say("retry of faults", ask(AMDKFD_IOC_SET_XNACK_MODE, mode));
  tell("is off", mode.xnack_enabled == 0);
  mode.xnack_enabled = 1;
  say("on", ask(AMDKFD_IOC_SET_XNACK_MODE, mode));
  Debug nothing{};
  say("debugging", ask(kEnable, nothing));
  say("a debugger", ask(kDebug, nothing));
  say("sampling", ask(kSample, nothing));
  kfd_ioctl_criu_args saved{};
  say("a checkpoint", ask(AMDKFD_IOC_CRIU_OP, saved));
}

// Addresses where nothing is, or nothing that can be read.
void malformed() {
  const auto answer = [](unsigned long request, uint64_t argument) {
    return ioctl(kfd, request, argument) == 0 ? 0 : errno;
  };
  constexpr uint64_t kNowhere = 4096, kPage = 4096;
  say("no arguments", answer(AMDKFD_IOC_GET_VERSION, 0));
  say("arguments nowhere", answer(AMDKFD_IOC_SET_EVENT, kNowhere));
  say("arguments beyond memory", answer(AMDKFD_IOC_SET_EVENT, ~uint64_t{0}));
  kfd_ioctl_get_process_apertures_new_args apertures{kNowhere, 9, 0};
  say("apertures nowhere", ask(AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, apertures));
  kfd_ioctl_wait_events_args events{kNowhere, 3, 0, 1, 0};
  say("events nowhere", ask(AMDKFD_IOC_WAIT_EVENTS, events));
  events.num_events = ~0u;
  say("more events than there are", ask(AMDKFD_IOC_WAIT_EVENTS, events));
  uint64_t handle = 0;
  allocate(1 << 20, handle, KFD_IOC_ALLOC_MEM_FLAGS_GTT, nullptr);
  kfd_ioctl_map_memory_to_gpu_args mapped{handle, kNowhere, 1, 0};
  say("devices nowhere", ask(AMDKFD_IOC_MAP_MEMORY_TO_GPU, mapped));
  say("attributes nowhere", answer(AMDKFD_IOC_SVM + (8 << _IOC_SIZESHIFT), kNowhere));
  kfd_ioctl_create_event_args event{};
  event.event_page_offset = handle;
  say("mailboxes without an address", ask(AMDKFD_IOC_CREATE_EVENT, event));
  release(handle);
  static uint64_t indices[2];
  auto *pages = static_cast<char *>(reserve(2 * kPage));
  munmap(pages + kPage, kPage);
  const auto make = [&](const void *ring, uint32_t size, const void *write) {
    Queue asked{};
    asked.ring = reinterpret_cast<uint64_t>(ring);
    asked.write = reinterpret_cast<uint64_t>(write);
    asked.read = reinterpret_cast<uint64_t>(indices + 1);
    asked.size = size;
    asked.gpu = gpu;
    asked.type = KFD_IOC_QUEUE_TYPE_SDMA;
    return ask(kCreateQueue, asked);
  };
  const auto *nowhere = reinterpret_cast<const void *>(kNowhere);
  say("a ring nowhere", make(nowhere, kPage, indices));
  say("a ring that cannot be read", make(pages, kPage, indices));
  mprotect(pages, kPage, PROT_READ | PROT_WRITE);
  say("a ring that is half there", make(pages, 2 * kPage, indices));
  say("an index nowhere", make(pages, kPage, nowhere));
}

// It is a character device, by whichever function a program asks; those with "__" are of glibc before 2.33.
void render_device() {
  const char *path = "/dev/dri/renderD128";
  const int file = open(path, O_RDWR);
  const auto find = [](const char *name) { return dlsym(RTLD_DEFAULT, name); };
  auto *old = reinterpret_cast<int (*)(int, const char *, struct stat *)>(find("__xstat"));
  auto *old_link = reinterpret_cast<int (*)(int, const char *, struct stat *)>(find("__lxstat"));
  auto *old_open = reinterpret_cast<int (*)(int, int, struct stat *)>(find("__fxstat"));
  auto *old_at = reinterpret_cast<int (*)(int, int, const char *, struct stat *, int)>(find("__fxstatat"));
  if (!old || !old_link || !old_open || !old_at)
    return tell("functions of old programs", false);
  unsigned right = 0;
  for (unsigned function = 0; function < 8; ++function) {
    struct stat found {};
    const int failed = function == 0   ? stat(path, &found)
                       : function == 1 ? lstat(path, &found)
                       : function == 2 ? fstat(file, &found)
                       : function == 3 ? fstatat(AT_FDCWD, path, &found, 0)
                       : function == 4 ? old(1, path, &found)
                       : function == 5 ? old_link(1, path, &found)
                       : function == 6 ? old_open(1, file, &found)
                                       : old_at(1, AT_FDCWD, path, &found, 0);
    right += !failed && S_ISCHR(found.st_mode) && found.st_rdev == makedev(226, 128);
  }
  std::printf("a render device: %u of 8\n", right);
}

}  // namespace

int main() {
  FILE *file = std::fopen("/sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id", "r");
  if (!file || std::fscanf(file, "%u", &gpu) != 1)
    return 2;
  kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  kfd_ioctl_get_version_args version{};
  if (kfd < 0 || ask(AMDKFD_IOC_GET_VERSION, version))
    return 3;
  std::printf("version %u.%u\n", version.major_version, version.minor_version);
  memory();
  kfd_ioctl_get_tile_config_args tiles{};
  tiles.gpu_id = gpu;
  tell("tiles", ask(AMDKFD_IOC_GET_TILE_CONFIG, tiles) == 0 && tiles.gb_addr_config);
  dmabuf();
  shared_virtual_memory();
  ages();
  queues();
  system_events();
  refused();
  malformed();
  render_device();
  gpu = 0xFFFF;
  std::printf("of no device: %s\n", std::strerror(static_cast<int>(-available())));
}
