// Functions of the C library by which the kernel reads or writes a program's memory, before its own: where pages are
// protected, the kernel would not access them, and the function would fail.
#include <cstddef>
#include <cstdio>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "in_flight.h"
#include "sanitizer.h"

using luthier::in_flight::used_by_call;

namespace {

// Return the C library's own function. `known` keeps it: allocators and constructors of libraries use these functions.
template <typename Function> Function *of_c(const char *name, Function *&known) {
  if (!known)
    known = luthier::next<Function>(name, "libc.so");
  return known;
}

void used(const char *function, const iovec *parts, size_t count, bool writes) {
  for (size_t at = 0; parts && at < count; ++at)
    used_by_call(function, parts[at].iov_base, parts[at].iov_len, writes);
}

} // namespace

#define FORWARD(name, result, types, ...)                                                                              \
  static result(*own) types = nullptr;                                                                                 \
  return of_c(#name, own)(__VA_ARGS__);

extern "C" {

ssize_t read(int file, void *to, size_t size) {
  used_by_call("read", to, size, true);
  FORWARD(read, ssize_t, (int, void *, size_t), file, to, size)
}
ssize_t __read_chk(int file, void *to, size_t size, size_t room) { // NOLINT(bugprone-reserved-identifier): glibc's
  used_by_call("read", to, size, true);
  FORWARD(__read_chk, ssize_t, (int, void *, size_t, size_t), file, to, size, room)
}
ssize_t pread(int file, void *to, size_t size, off_t at) {
  used_by_call("pread", to, size, true);
  FORWARD(pread, ssize_t, (int, void *, size_t, off_t), file, to, size, at)
}
ssize_t pread64(int file, void *to, size_t size, off64_t at) {
  used_by_call("pread", to, size, true);
  FORWARD(pread64, ssize_t, (int, void *, size_t, off64_t), file, to, size, at)
}
ssize_t recv(int socket, void *to, size_t size, int flags) {
  used_by_call("recv", to, size, true);
  FORWARD(recv, ssize_t, (int, void *, size_t, int), socket, to, size, flags)
}
ssize_t recvfrom(int socket, void *to, size_t size, int flags, sockaddr *address, socklen_t *length) {
  used_by_call("recvfrom", to, size, true);
  FORWARD(recvfrom, ssize_t, (int, void *, size_t, int, sockaddr *, socklen_t *), socket, to, size, flags, address,
          length)
}
ssize_t recvmsg(int socket, msghdr *message, int flags) {
  if (message)
    used("recvmsg", message->msg_iov, message->msg_iovlen, true);
  FORWARD(recvmsg, ssize_t, (int, msghdr *, int), socket, message, flags)
}
ssize_t readv(int file, const iovec *parts, int count) {
  used("readv", parts, count, true);
  FORWARD(readv, ssize_t, (int, const iovec *, int), file, parts, count)
}
ssize_t preadv(int file, const iovec *parts, int count, off_t at) {
  used("preadv", parts, count, true);
  FORWARD(preadv, ssize_t, (int, const iovec *, int, off_t), file, parts, count, at)
}
size_t fread(void *to, size_t size, size_t count, FILE *file) {
  used_by_call("fread", to, size * count, true);
  FORWARD(fread, size_t, (void *, size_t, size_t, FILE *), to, size, count, file)
}
ssize_t write(int file, const void *from, size_t size) {
  used_by_call("write", from, size, false);
  FORWARD(write, ssize_t, (int, const void *, size_t), file, from, size)
}
ssize_t pwrite(int file, const void *from, size_t size, off_t at) {
  used_by_call("pwrite", from, size, false);
  FORWARD(pwrite, ssize_t, (int, const void *, size_t, off_t), file, from, size, at)
}
ssize_t pwrite64(int file, const void *from, size_t size, off64_t at) {
  used_by_call("pwrite", from, size, false);
  FORWARD(pwrite64, ssize_t, (int, const void *, size_t, off64_t), file, from, size, at)
}
ssize_t send(int socket, const void *from, size_t size, int flags) {
  used_by_call("send", from, size, false);
  FORWARD(send, ssize_t, (int, const void *, size_t, int), socket, from, size, flags)
}
ssize_t sendto(int socket, const void *from, size_t size, int flags, const sockaddr *address, socklen_t length) {
  used_by_call("sendto", from, size, false);
  FORWARD(sendto, ssize_t, (int, const void *, size_t, int, const sockaddr *, socklen_t), socket, from, size, flags,
          address, length)
}
ssize_t sendmsg(int socket, const msghdr *message, int flags) {
  if (message)
    used("sendmsg", message->msg_iov, message->msg_iovlen, false);
  FORWARD(sendmsg, ssize_t, (int, const msghdr *, int), socket, message, flags)
}
ssize_t writev(int file, const iovec *parts, int count) {
  used("writev", parts, count, false);
  FORWARD(writev, ssize_t, (int, const iovec *, int), file, parts, count)
}
ssize_t pwritev(int file, const iovec *parts, int count, off_t at) {
  used("pwritev", parts, count, false);
  FORWARD(pwritev, ssize_t, (int, const iovec *, int, off_t), file, parts, count, at)
}
size_t fwrite(const void *from, size_t size, size_t count, FILE *file) {
  used_by_call("fwrite", from, size * count, false);
  FORWARD(fwrite, size_t, (const void *, size_t, size_t, FILE *), from, size, count, file)
}
}
