#include "user_memory.h"

#include <cerrno>
#include <cstring>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "memory.h"

namespace luthier {

// The kernel reads the set of signals before it refuses the invalid operation. process_vm_readv takes ten times as
// long.
bool is_readable(uint64_t address, uint64_t size) {
  constexpr uint64_t kSet = 8; // bytes
  constexpr int kNothing = -1;
  const uint64_t end = address + size;
  if (end < address)
    return false;
  for (uint64_t at = address / kSet * kSet; at < end; at = (at / kPageSize + 1) * kPageSize)
    if (syscall(SYS_rt_sigprocmask, kNothing, at, nullptr, kSet) == 0 || errno != EINVAL)
      return false;
  return true;
}

bool copy_from_user(void *to, uint64_t from, size_t size) {
  if (!is_readable(from, size))
    return false;
  if (size)
    std::memcpy(to, reinterpret_cast<const void *>(from), size);
  return true;
}

bool copy_to_user(uint64_t to, const void *from, size_t size) {
  const iovec local{const_cast<void *>(from), size}, remote{reinterpret_cast<void *>(to), size};
  const ssize_t copied = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
  if (copied < 0 && (errno == ENOSYS || errno == EPERM) && is_readable(to, size)) { // in a sandbox
    std::memcpy(remote.iov_base, from, size);
    return true;
  }
  return copied == static_cast<ssize_t>(size);
}

} // namespace luthier
