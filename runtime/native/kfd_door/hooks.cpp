// The functions of the C library that a program meets the driver with. Files of the driver are in a folder that
// `luthier run` made, the devices are files there, and what is asked of these devices goes to the virtual one.
#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver.h"

namespace {

// Where each of them lies in the folder; a path that goes on below one goes on there.
struct Moved {
  const char *path, *there;
};
constexpr Moved kMoved[] = {
    {"/dev/kfd", "kfd"},
    {"/dev/dri", "dri"},
    {"/sys/devices/virtual/kfd/kfd/topology", "topology"},
    {"/sys/class/kfd/kfd/topology", "topology"},
    {"/sys/module/amdgpu", "amdgpu"},
    {"/proc/modules", "modules"},
    {"/usr/share/libdrm/amdgpu.ids", "amdgpu.ids"},
};

const char *folder() {
  static const char *const found = std::getenv("LUTHIER_RUN_KFD");
  return found;
}

template <typename Function> Function next(const char *name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// A path as it is meant.
class Path {
public:
  explicit Path(const char *path) : path_(path) {
    if (!path || path[0] != '/' || !folder())
      return;
    for (const Moved &moved : kMoved) {
      const size_t length = std::strlen(moved.path);
      if (std::strncmp(path, moved.path, length) != 0 || (path[length] && path[length] != '/'))
        continue;
      const int size = std::snprintf(text_.data(), text_.size(), "%s/%s%s", folder(), moved.there, path + length);
      if (size > 0 && static_cast<size_t>(size) < text_.size())
        path_ = text_.data();
      is_kfd_ = !std::strcmp(moved.there, "kfd");
      return;
    }
  }
  operator const char *() const { return path_; }
  bool is_kfd() const { return is_kfd_; }

private:
  const char *path_;
  bool is_kfd_ = false;
  std::array<char, PATH_MAX> text_;
};

constexpr int kMost = 32, kFirstMinor = 128;  // render devices
constexpr int kNone = -1, kKfd = 0;           // the GPUs' render devices come next

// Which of the devices a file descriptor is, however it was made.
int device_of(int fd) {
  static const auto all = [] {
    std::array<std::pair<dev_t, ino_t>, kMost + 1> found{};
    const auto look = [&](int place, const std::string &path) {
      struct stat status;
      if (syscall(SYS_newfstatat, AT_FDCWD, path.c_str(), &status, 0) == 0)
        found[place] = {status.st_dev, status.st_ino};
    };
    if (const char *base = folder()) {
      look(kKfd, std::string(base) + "/kfd");
      for (int number = 0; number < kMost; ++number)
        look(number + 1, std::string(base) + "/dri/renderD" + std::to_string(kFirstMinor + number));
    }
    return found;
  }();
  struct stat status;
  if (fd < 0 || !all[kKfd].second || syscall(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) != 0)
    return kNone;
  const std::pair<dev_t, ino_t> wanted(status.st_dev, status.st_ino);
  for (size_t place = 0; place < all.size() && all[place].second; ++place)
    if (all[place] == wanted)
      return static_cast<int>(place);
  return kNone;
}

int open_at(int where, const char *name, int flags, mode_t mode) {
  const Path path(name);
  if (path.is_kfd() && !luthier::kfd_open()) {
    errno = ENODEV;
    return -1;
  }
  static const auto real = next<int (*)(int, const char *, int, ...)>("openat64");
  return real(where, path, flags, mode);
}

mode_t mode_of(int flags, va_list list) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0; }

}  // namespace

#define LUTHIER_HOOK extern "C" __attribute__((visibility("default")))

#define LUTHIER_OPEN(name)                                                                                             \
  LUTHIER_HOOK int name(const char *path, int flags, ...) {                                                            \
    va_list list;                                                                                                      \
    va_start(list, flags);                                                                                             \
    const mode_t mode = mode_of(flags, list);                                                                          \
    va_end(list);                                                                                                      \
    return open_at(AT_FDCWD, path, flags, mode);                                                                       \
  }
#define LUTHIER_OPENAT(name)                                                                                           \
  LUTHIER_HOOK int name(int where, const char *path, int flags, ...) {                                                 \
    va_list list;                                                                                                      \
    va_start(list, flags);                                                                                             \
    const mode_t mode = mode_of(flags, list);                                                                          \
    va_end(list);                                                                                                      \
    return open_at(where, path, flags, mode);                                                                          \
  }

#undef open
#undef open64
#undef openat
#undef openat64
LUTHIER_OPEN(open)
LUTHIER_OPEN(open64)
LUTHIER_OPENAT(openat)
LUTHIER_OPENAT(openat64)
LUTHIER_HOOK int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
LUTHIER_HOOK int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }

// A function with a path among its arguments.
#define LUTHIER_PATH(Result, name, parameters, arguments)                                                              \
  LUTHIER_HOOK Result name parameters {                                                                                \
    const Path path(given);                                                                                            \
    static const auto real = next<Result(*) parameters>(#name);                                                        \
    return real arguments;                                                                                             \
  }

LUTHIER_PATH(FILE *, fopen, (const char *given, const char *mode), (path, mode))
LUTHIER_PATH(FILE *, fopen64, (const char *given, const char *mode), (path, mode))
LUTHIER_PATH(DIR *, opendir, (const char *given), (path))
LUTHIER_PATH(int, access, (const char *given, int mode) noexcept, (path, mode))
LUTHIER_PATH(int, euidaccess, (const char *given, int mode) noexcept, (path, mode))
LUTHIER_PATH(ssize_t, readlink, (const char *given, char *buffer, size_t size) noexcept, (path, buffer, size))
LUTHIER_PATH(int, stat, (const char *given, struct stat *status) noexcept, (path, status))
LUTHIER_PATH(int, lstat, (const char *given, struct stat *status) noexcept, (path, status))
LUTHIER_PATH(int, stat64, (const char *given, struct stat64 *status) noexcept, (path, status))
LUTHIER_PATH(int, lstat64, (const char *given, struct stat64 *status) noexcept, (path, status))

LUTHIER_PATH(int, faccessat, (int where, const char *given, int mode, int flags) noexcept, (where, path, mode, flags))
LUTHIER_PATH(int, fstatat, (int where, const char *given, struct stat *status, int flags) noexcept,
                (where, path, status, flags))
LUTHIER_PATH(int, fstatat64, (int where, const char *given, struct stat64 *status, int flags) noexcept,
                (where, path, status, flags))
LUTHIER_PATH(ssize_t, readlinkat, (int where, const char *given, char *buffer, size_t size) noexcept,
                (where, path, buffer, size))
LUTHIER_PATH(int, statx, (int where, const char *given, int flags, unsigned mask, struct statx *status) noexcept,
                (where, path, flags, mask, status))

LUTHIER_HOOK int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void *argument = va_arg(list, void *);
  va_end(list);
  constexpr unsigned kKfdRequest = 'K', kRenderRequest = 'd';
  const unsigned type = request >> 8 & 0xFF;
  const int device = type == kKfdRequest || type == kRenderRequest ? device_of(fd) : kNone;
  if (device == kNone)
    return syscall(SYS_ioctl, fd, request, argument);
  const int result =
      device == kKfd ? luthier::kfd_ioctl(request, argument) : luthier::render_ioctl(device - 1, request, argument);
  if (result >= 0)
    return result;
  errno = -result;
  return -1;
}

namespace {

void *map(void *address, size_t size, int protection, int flags, int fd, off64_t offset) {
  if (!(flags & MAP_ANONYMOUS) && device_of(fd) != kNone)
    return luthier::kfd_mmap(address, size, flags, static_cast<uint64_t>(offset));
  return reinterpret_cast<void *>(syscall(SYS_mmap, address, size, protection, flags, fd, offset));
}

}  // namespace

LUTHIER_HOOK void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  return map(address, size, protection, flags, fd, offset);
}
LUTHIER_HOOK void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset) noexcept {
  return map(address, size, protection, flags, fd, offset);
}
