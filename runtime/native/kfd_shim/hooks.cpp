// The functions of the C library by which a program uses the driver. Files of the driver are in a folder that
// `luthier run` made. The devices are files there, and requests to them go to the virtual device.
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
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "agreement.h"
#include "driver.h"
#include "exported.h"

namespace {

using namespace luthier::topology;

const char *folder() {
  static const char *const value = std::getenv(kFilesVariable);
  return value;
}

template <typename Function> Function next(const char *name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// A path, in the folder of `luthier run` if it is one of the driver's.
class Path {
public:
  explicit Path(const char *path) : path_(path) {
    // Programs pass null although the headers forbid it: the compiler must not rely on that.
    asm("" : "+r"(path));
    if (!path || path[0] != '/' || !folder())
      return;
    for (const Place &moved : kPlaces) {
      const size_t length = std::strlen(moved.path);
      if (std::strncmp(path, moved.path, length) != 0 ||
          (path[length] && path[length] != '/' && path[length - 1] != ':'))
        continue;
      const int size = std::snprintf(text_.data(), text_.size(), "%s/%s%s", folder(), moved.there, path + length);
      if (size > 0 && static_cast<size_t>(size) < text_.size())
        path_ = text_.data();
      is_kfd_ = !std::strcmp(moved.there, kDevice);
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

constexpr int kNone = -1, kKfd = 0; // the GPUs' render devices come next

// Return the device that a file is, however it was opened.
int device_of(const struct stat &status) {
  static const auto all = [] {
    std::array<std::pair<dev_t, ino_t>, kMostDevices + 1> devices{};
    const auto look = [&](int place, const std::string &path) {
      struct stat status;
      if (syscall(SYS_newfstatat, AT_FDCWD, path.c_str(), &status, 0) == 0)
        devices[place] = {status.st_dev, status.st_ino};
    };
    if (const char *base = folder()) {
      const std::string below = std::string(base) + "/";
      look(kKfd, below + kDevice);
      for (unsigned number = 0; number < kMostDevices; ++number)
        look(number + 1, below + kRender + "/renderD" + std::to_string(kFirstMinor + number));
    }
    return devices;
  }();
  if (!all[kKfd].second)
    return kNone;
  const std::pair<dev_t, ino_t> wanted(status.st_dev, status.st_ino);
  for (size_t place = 0; place < all.size() && all[place].second; ++place)
    if (all[place] == wanted)
      return static_cast<int>(place);
  return kNone;
}

int device_of(int fd) {
  struct stat status;
  if (fd < 0 || !folder() || syscall(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) != 0)
    return kNone;
  return device_of(status);
}

// The state of a file as the kernel reports it, in the C library's structure. Render devices are character devices,
// which libdrm distinguishes by number.
int state_of(int where, const char *path, void *to, int flags) {
  if (syscall(SYS_newfstatat, where, path, to, flags) != 0)
    return -1;
  struct stat &status = *static_cast<struct stat *>(to);
  if (const int device = folder() ? device_of(status) : kNone; device > kKfd) {
    status.st_mode = S_IFCHR | (status.st_mode & ~S_IFMT);
    status.st_rdev = makedev(kDrmMajor, kFirstMinor + device - 1);
  }
  return 0;
}
static_assert(sizeof(struct stat) == sizeof(struct stat64));

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

} // namespace

#define LUTHIER_OPEN(name)                                                                                             \
  LUTHIER_EXPORT int name(const char *path, int flags, ...) {                                                          \
    va_list list;                                                                                                      \
    va_start(list, flags);                                                                                             \
    const mode_t mode = mode_of(flags, list);                                                                          \
    va_end(list);                                                                                                      \
    return open_at(AT_FDCWD, path, flags, mode);                                                                       \
  }
#define LUTHIER_OPENAT(name)                                                                                           \
  LUTHIER_EXPORT int name(int where, const char *path, int flags, ...) {                                               \
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
LUTHIER_EXPORT int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
LUTHIER_EXPORT int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }

// A function with a path among its arguments.
#define LUTHIER_PATH(Result, name, parameters, arguments)                                                              \
  LUTHIER_EXPORT Result name parameters {                                                                              \
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
LUTHIER_PATH(int, faccessat, (int where, const char *given, int mode, int flags) noexcept, (where, path, mode, flags))
LUTHIER_PATH(ssize_t, readlinkat, (int where, const char *given, char *buffer, size_t size) noexcept,
             (where, path, buffer, size))
LUTHIER_PATH(int, statx, (int where, const char *given, int flags, unsigned mask, struct statx *status) noexcept,
             (where, path, flags, mask, status))

// The state of a file. Programs built for glibc before 2.33 call the functions whose names begin with "__".
#define LUTHIER_STATE(suffix, Status)                                                                                  \
  LUTHIER_EXPORT int stat##suffix(const char *given, Status *status) noexcept {                                        \
    return state_of(AT_FDCWD, Path(given), status, 0);                                                                 \
  }                                                                                                                    \
  LUTHIER_EXPORT int lstat##suffix(const char *given, Status *status) noexcept {                                       \
    return state_of(AT_FDCWD, Path(given), status, AT_SYMLINK_NOFOLLOW);                                               \
  }                                                                                                                    \
  LUTHIER_EXPORT int fstat##suffix(int fd, Status *status) noexcept {                                                  \
    return state_of(fd, "", status, AT_EMPTY_PATH);                                                                    \
  }                                                                                                                    \
  LUTHIER_EXPORT int fstatat##suffix(int where, const char *given, Status *status, int flags) noexcept {               \
    return state_of(where, Path(given), status, flags);                                                                \
  }                                                                                                                    \
  LUTHIER_EXPORT int __xstat##suffix(int, const char *given, Status *status) noexcept {                                \
    return stat##suffix(given, status);                                                                                \
  }                                                                                                                    \
  LUTHIER_EXPORT int __lxstat##suffix(int, const char *given, Status *status) noexcept {                               \
    return lstat##suffix(given, status);                                                                               \
  }                                                                                                                    \
  LUTHIER_EXPORT int __fxstat##suffix(int, int fd, Status *status) noexcept { return fstat##suffix(fd, status); }      \
  LUTHIER_EXPORT int __fxstatat##suffix(int, int where, const char *given, Status *status, int flags) noexcept {       \
    return fstatat##suffix(where, given, status, flags);                                                               \
  }
LUTHIER_STATE(, struct stat)
LUTHIER_STATE(64, struct stat64)

namespace {

// The first bytes of the functions that map devices.
auto code_of_mapping() noexcept {
  std::array<std::array<uint8_t, 16>, 2> code;
  std::memcpy(code[0].data(), reinterpret_cast<const void *>(&::mmap), code[0].size());
  std::memcpy(code[1].data(), reinterpret_cast<const void *>(&::mmap64), code[1].size());
  return code;
}

const auto loaded_code = code_of_mapping();

// Return whether a library has patched these functions, as MPI libraries do. Their code calls the kernel, where a
// device is an empty file: the program would end with SIGBUS at its first access.
bool is_overwritten() {
  if (code_of_mapping() == loaded_code)
    return false;
  static const int once =
      std::fputs("luthier: a library of the program has overwritten the code of mmap, by which memory "
                 "of virtual devices is mapped; for Open MPI set OMPI_MCA_memory=^patcher, for UCX "
                 "UCX_MEM_EVENTS=no\n",
                 stderr);
  static_cast<void>(once);
  return true;
}

} // namespace

LUTHIER_EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void *argument = va_arg(list, void *);
  va_end(list);
  constexpr unsigned kKfdRequest = 'K', kRenderRequest = 'd';
  const unsigned type = request >> 8 & 0xFF;
  const int device = type == kKfdRequest || type == kRenderRequest ? device_of(fd) : kNone;
  if (device == kNone)
    return syscall(SYS_ioctl, fd, request, argument);
  if (is_overwritten()) {
    errno = ENODEV;
    return -1;
  }
  const int result =
      device == kKfd ? luthier::kfd_ioctl(request, argument) : luthier::render_ioctl(device - 1, request, argument);
  if (result >= 0)
    return result;
  errno = -result;
  return -1;
}

namespace {

// Nothing is allocated here, thus `std::ref`: allocators call these functions.
void *map(void *address, size_t size, int protection, int flags, int fd, off64_t offset) {
  if (!(flags & MAP_ANONYMOUS) && device_of(fd) != kNone)
    return luthier::device_mmap(address, size, protection, flags, static_cast<uint64_t>(offset));
  const auto real = [&] { return syscall(SYS_mmap, address, size, protection, flags, fd, offset); };
  return reinterpret_cast<void *>(flags & MAP_FIXED ? luthier::replace_addresses(address, size, std::ref(real))
                                                    : real());
}

} // namespace

LUTHIER_EXPORT void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  return map(address, size, protection, flags, fd, offset);
}
LUTHIER_EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset) noexcept {
  return map(address, size, protection, flags, fd, offset);
}
LUTHIER_EXPORT int munmap(void *address, size_t size) noexcept {
  const auto real = [&] { return syscall(SYS_munmap, address, size); };
  return luthier::replace_addresses(address, size, std::ref(real));
}
