// Preloaded into a command: calls on files whose path begins in some way fail, as on a full or broken disk.
//   FAILING_BELOW   how their paths begin; "/memfd:" are files of memory
//   FAILING_CALLS   some of: open write close rename fsync lock memory map
//   FAILING_ERROR   what errno is then
//   FAILING_AFTER   such calls that succeed before (default 0), in all processes together if there is
//   FAILING_COUNT   a file of 8 bytes in which they are counted
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long own, *count = &own;

#define NEXT(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

__attribute__((constructor)) static void share_count(void) {
  const char *name = getenv("FAILING_COUNT");
  const int file = name ? NEXT(int, "open", const char *, int, ...)(name, O_RDWR | O_CLOEXEC) : -1;
  void *shared = file < 0 ? MAP_FAILED
                          : NEXT(void *, "mmap", void *, size_t, int, int, int, off_t)(
                                NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared != MAP_FAILED)
    count = shared;
  if (file >= 0)
    NEXT(int, "close", int)(file);
}

static int fails(const char *call, const char *path) {
  const char *calls = getenv("FAILING_CALLS"), *error = getenv("FAILING_ERROR"), *folder = getenv("FAILING_BELOW");
  const char *after = getenv("FAILING_AFTER");
  if (!calls || !error || !folder || !strstr(calls, call) || strncmp(path, folder, strlen(folder)) != 0)
    return 0;
  if (atomic_fetch_add(count, 1) < (after ? atol(after) : 0))
    return 0;
  errno = atoi(error);
  return 1;
}

static int fails_on(const char *call, int file) {
  char link[64], path[PATH_MAX] = "";
  const int before = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  errno = before;
  return size > 0 && fails(call, path);
}

ssize_t write(int file, const void *data, size_t size) {
  return fails_on("write", file) ? -1 : NEXT(ssize_t, "write", int, const void *, size_t)(file, data, size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
  return fails_on("write", file) ? -1
                                 : NEXT(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(file, data, size, at);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return pwrite64(file, data, size, at); }

ssize_t writev(int file, const struct iovec *parts, int number) {
  return fails_on("write", file) ? -1 : NEXT(ssize_t, "writev", int, const struct iovec *, int)(file, parts, number);
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
  return fails_on("write", to) ? -1 : NEXT(ssize_t, "sendfile64", int, int, off64_t *, size_t)(to, from, at, size);
}

ssize_t sendfile(int to, int from, off_t *at, size_t size) { return sendfile64(to, from, at, size); }

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *place, size_t size, unsigned flags) {
  return fails_on("write", to) ? -1
                               : NEXT(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t,
                                      unsigned)(from, at, to, place, size, flags);
}

int fsync(int file) { return fails_on("fsync", file) ? -1 : NEXT(int, "fsync", int)(file); }

int close(int file) {
  const int before = errno, mode = NEXT(int, "fcntl", int, int, ...)(file, F_GETFL);
  errno = before;
  const int failed = mode >= 0 && (mode & O_ACCMODE) != O_RDONLY && fails_on("close", file), error = errno;
  const int status = NEXT(int, "close", int)(file);
  if (failed)
    errno = error;
  return failed ? -1 : status;
}

int rename(const char *from, const char *to) {
  return fails("rename", to) ? -1 : NEXT(int, "rename", const char *, const char *)(from, to);
}

int renameat(int folder, const char *from, int other, const char *to) {
  return fails("rename", to) ? -1
                             : NEXT(int, "renameat", int, const char *, int, const char *)(folder, from, other, to);
}

int flock(int file, int operation) {
  return !(operation & LOCK_UN) && fails_on("lock", file) ? -1 : NEXT(int, "flock", int, int)(file, operation);
}

int memfd_create(const char *name, unsigned flags) {
  char path[NAME_MAX + 8];
  snprintf(path, sizeof path, "/memfd:%s", name);
  return fails("memory", path) ? -1 : NEXT(int, "memfd_create", const char *, unsigned)(name, flags);
}

void *mmap64(void *address, size_t size, int protection, int flags, int file, off64_t at) {
  return file >= 0 && fails_on("map", file) ? MAP_FAILED
                                            : NEXT(void *, "mmap64", void *, size_t, int, int, int, off64_t)(
                                                  address, size, protection, flags, file, at);
}

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t at) {
  return mmap64(address, size, protection, flags, file, at);
}

#define WITH_ARGUMENT(type, name, first, second, kind, bad)                                                            \
  type name(first one, second other, ...) {                                                                            \
    va_list rest;                                                                                                      \
    va_start(rest, other);                                                                                             \
    kind argument = va_arg(rest, kind);                                                                                \
    va_end(rest);                                                                                                      \
    return (bad) ? -1 : NEXT(type, #name, first, second, ...)(one, other, argument);                                   \
  }

static int locks(int command) {
  return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

WITH_ARGUMENT(int, fcntl, int, int, void *, locks(other) && fails_on("lock", one))
WITH_ARGUMENT(int, fcntl64, int, int, void *, locks(other) && fails_on("lock", one))
WITH_ARGUMENT(int, open, const char *, int, int, fails("open", one))
WITH_ARGUMENT(int, open64, const char *, int, int, fails("open", one))
