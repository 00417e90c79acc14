// Preloaded into a command: calls on files below a folder fail, as on a full or broken disk.
//   FAILING_BELOW   the folder
//   FAILING_CALLS   some of: write close rename fsync
//   FAILING_ERROR   what errno is then
//   FAILING_AFTER   bytes that can be written before (default 0)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long written;

static int is_below(const char *path) {
  const char *folder = getenv("FAILING_BELOW");
  return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int fails(const char *call, const char *path) {
  const char *calls = getenv("FAILING_CALLS"), *error = getenv("FAILING_ERROR");
  if (!calls || !error || !strstr(calls, call) || !is_below(path))
    return 0;
  errno = atoi(error);
  return 1;
}

static int fails_on(const char *call, int file, size_t bytes) {
  char link[64], path[PATH_MAX] = "";
  const int before = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (readlink(link, path, sizeof path - 1) < 0) {
    errno = before;
    return 0;
  }
  errno = before;
  if (bytes && is_below(path)) {
    const char *after = getenv("FAILING_AFTER");
    if (atomic_fetch_add(&written, (long)bytes) + (long)bytes <= (after ? atol(after) : 0))
      return 0;
  }
  return fails(call, path);
}

#define NEXT(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

ssize_t write(int file, const void *data, size_t size) {
  return fails_on("write", file, size) ? -1 : NEXT(ssize_t, "write", int, const void *, size_t)(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  size_t size = 0;
  for (int i = 0; i < count; ++i)
    size += parts[i].iov_len;
  return fails_on("write", file, size) ? -1
                                       : NEXT(ssize_t, "writev", int, const struct iovec *, int)(file, parts, count);
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
  return fails_on("write", to, size) ? -1
                                     : NEXT(ssize_t, "sendfile64", int, int, off64_t *, size_t)(to, from, at, size);
}

ssize_t sendfile(int to, int from, off_t *at, size_t size) { return sendfile64(to, from, at, size); }

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *place, size_t size, unsigned flags) {
  return fails_on("write", to, size) ? -1
                                     : NEXT(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t,
                                            unsigned)(from, at, to, place, size, flags);
}

int fsync(int file) { return fails_on("fsync", file, 0) ? -1 : NEXT(int, "fsync", int)(file); }

int close(int file) {
  const int failed = fails_on("close", file, 0), error = errno;
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
