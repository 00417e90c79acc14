// A library of its own, which only programs get that are checked for accesses in flight: functions of the C library by
// which the kernel reads or writes a program's memory. Where pages are protected, the kernel would not access them, and
// the function would fail.
#include <cstddef>
#include <cstdio>
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

extern "C" __attribute__((weak)) void luthier_used_by_call(const char *function, const void *address, size_t size,
                                                           bool writes);

namespace {

// Lift the protection of memory, and report its use.
void used_by_call(const char *function, const void *address, size_t size, bool writes) {
  if (luthier_used_by_call)
    luthier_used_by_call(function, address, size, writes);
}

// Return the next function of a name: the C library's own. `known` keeps it, since allocators and constructors of
// libraries use these functions. Luthier's `dlsym` is not asked, for which another library would be the next.
template <typename Function> Function *of_c(const char *name, const char *version, Function *&known) {
  if (!known)
    known = reinterpret_cast<Function *>(dlvsym(RTLD_NEXT, name, version));
  return known;
}

void used(const char *function, const iovec *parts, size_t count, bool writes) {
  for (size_t at = 0; parts && at < count; ++at)
    used_by_call(function, parts[at].iov_base, parts[at].iov_len, writes);
}

} // namespace

constexpr const char *kFirst = "GLIBC_2.2.5"; // of x86-64

#define FORWARD(version, name, result, types, ...)                                                                     \
  static result(*own) types = nullptr;                                                                                 \
  return of_c(#name, version, own)(__VA_ARGS__);

extern "C" {

ssize_t read(int file, void *to, size_t size) {
  used_by_call("read", to, size, true);
  FORWARD(kFirst, read, ssize_t, (int, void *, size_t), file, to, size)
}
ssize_t __read_chk(int file, void *to, size_t size, size_t room) { // NOLINT(bugprone-reserved-identifier): glibc's
  used_by_call("read", to, size, true);
  FORWARD("GLIBC_2.4", __read_chk, ssize_t, (int, void *, size_t, size_t), file, to, size, room)
}
ssize_t pread(int file, void *to, size_t size, off_t at) {
  used_by_call("pread", to, size, true);
  FORWARD(kFirst, pread, ssize_t, (int, void *, size_t, off_t), file, to, size, at)
}
ssize_t pread64(int file, void *to, size_t size, off64_t at) {
  used_by_call("pread", to, size, true);
  FORWARD(kFirst, pread64, ssize_t, (int, void *, size_t, off64_t), file, to, size, at)
}
ssize_t recv(int socket, void *to, size_t size, int flags) {
  used_by_call("recv", to, size, true);
  FORWARD(kFirst, recv, ssize_t, (int, void *, size_t, int), socket, to, size, flags)
}
ssize_t recvfrom(int socket, void *to, size_t size, int flags, sockaddr *address, socklen_t *length) {
  used_by_call("recvfrom", to, size, true);
  FORWARD(kFirst, recvfrom, ssize_t, (int, void *, size_t, int, sockaddr *, socklen_t *), socket, to, size, flags,
          address, length)
}
ssize_t recvmsg(int socket, msghdr *message, int flags) {
  if (message)
    used("recvmsg", message->msg_iov, message->msg_iovlen, true);
  FORWARD(kFirst, recvmsg, ssize_t, (int, msghdr *, int), socket, message, flags)
}
ssize_t readv(int file, const iovec *parts, int count) {
  used("readv", parts, count, true);
  FORWARD(kFirst, readv, ssize_t, (int, const iovec *, int), file, parts, count)
}
ssize_t preadv(int file, const iovec *parts, int count, off_t at) {
  used("preadv", parts, count, true);
  FORWARD("GLIBC_2.10", preadv, ssize_t, (int, const iovec *, int, off_t), file, parts, count, at)
}
size_t fread(void *to, size_t size, size_t count, FILE *file) {
  used_by_call("fread", to, size * count, true);
  FORWARD(kFirst, fread, size_t, (void *, size_t, size_t, FILE *), to, size, count, file)
}
ssize_t write(int file, const void *from, size_t size) {
  used_by_call("write", from, size, false);
  FORWARD(kFirst, write, ssize_t, (int, const void *, size_t), file, from, size)
}
ssize_t pwrite(int file, const void *from, size_t size, off_t at) {
  used_by_call("pwrite", from, size, false);
  FORWARD(kFirst, pwrite, ssize_t, (int, const void *, size_t, off_t), file, from, size, at)
}
ssize_t pwrite64(int file, const void *from, size_t size, off64_t at) {
  used_by_call("pwrite", from, size, false);
  FORWARD(kFirst, pwrite64, ssize_t, (int, const void *, size_t, off64_t), file, from, size, at)
}
ssize_t send(int socket, const void *from, size_t size, int flags) {
  used_by_call("send", from, size, false);
  FORWARD(kFirst, send, ssize_t, (int, const void *, size_t, int), socket, from, size, flags)
}
ssize_t sendto(int socket, const void *from, size_t size, int flags, const sockaddr *address, socklen_t length) {
  used_by_call("sendto", from, size, false);
  FORWARD(kFirst, sendto, ssize_t, (int, const void *, size_t, int, const sockaddr *, socklen_t), socket, from, size,
          flags, address, length)
}
ssize_t sendmsg(int socket, const msghdr *message, int flags) {
  if (message)
    used("sendmsg", message->msg_iov, message->msg_iovlen, false);
  FORWARD(kFirst, sendmsg, ssize_t, (int, const msghdr *, int), socket, message, flags)
}
ssize_t writev(int file, const iovec *parts, int count) {
  used("writev", parts, count, false);
  FORWARD(kFirst, writev, ssize_t, (int, const iovec *, int), file, parts, count)
}
ssize_t pwritev(int file, const iovec *parts, int count, off_t at) {
  used("pwritev", parts, count, false);
  FORWARD("GLIBC_2.10", pwritev, ssize_t, (int, const iovec *, int, off_t), file, parts, count, at)
}
size_t fwrite(const void *from, size_t size, size_t count, FILE *file) {
  used_by_call("fwrite", from, size * count, false);
  FORWARD(kFirst, fwrite, size_t, (const void *, size_t, size_t, FILE *), from, size, count, file)
}
ssize_t preadv64(int file, const iovec *parts, int count, off64_t at) {
  used("preadv", parts, count, true);
  FORWARD("GLIBC_2.10", preadv64, ssize_t, (int, const iovec *, int, off64_t), file, parts, count, at)
}
ssize_t pwritev64(int file, const iovec *parts, int count, off64_t at) {
  used("pwritev", parts, count, false);
  FORWARD("GLIBC_2.10", pwritev64, ssize_t, (int, const iovec *, int, off64_t), file, parts, count, at)
}
size_t fread_unlocked(void *to, size_t size, size_t count, FILE *file) {
  used_by_call("fread", to, size * count, true);
  FORWARD(kFirst, fread_unlocked, size_t, (void *, size_t, size_t, FILE *), to, size, count, file)
}
size_t fwrite_unlocked(const void *from, size_t size, size_t count, FILE *file) {
  used_by_call("fwrite", from, size * count, false);
  FORWARD(kFirst, fwrite_unlocked, size_t, (const void *, size_t, size_t, FILE *), from, size, count, file)
}
// NOLINTBEGIN(bugprone-reserved-identifier): glibc's
ssize_t __pread_chk(int file, void *to, size_t size, off_t at, size_t room) {
  used_by_call("pread", to, size, true);
  FORWARD("GLIBC_2.4", __pread_chk, ssize_t, (int, void *, size_t, off_t, size_t), file, to, size, at, room)
}
ssize_t __recv_chk(int socket, void *to, size_t size, size_t room, int flags) {
  used_by_call("recv", to, size, true);
  FORWARD("GLIBC_2.4", __recv_chk, ssize_t, (int, void *, size_t, size_t, int), socket, to, size, room, flags)
}
size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *file) {
  used_by_call("fread", to, size * count, true);
  FORWARD("GLIBC_2.7", __fread_chk, size_t, (void *, size_t, size_t, size_t, FILE *), to, room, size, count, file)
}
// NOLINTEND(bugprone-reserved-identifier)
}
