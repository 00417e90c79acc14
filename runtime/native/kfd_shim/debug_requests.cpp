// Debugging: the runtime says that it may be debugged, and a debugger's requests go to the process that it names.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "chips.h"
#include "kernel_driver.h"
#include "user_memory.h"

namespace luthier {

namespace {

// The connections of a debugger to processes, by number.
struct Connections {
  std::mutex mutex;
  std::map<uint32_t, int> open;

  // Never destroyed: debuggers end their sessions when they end.
  static Connections &get() {
    static auto *all = new Connections;
    return *all;
  }
};

constexpr timeval kPatience{10, 0}; // for an answer

int no_answer(uint32_t pid) {
  std::fprintf(stderr, "luthier: process %u does not answer the debugger; are its threads stopped?\n", pid);
  return -ETIMEDOUT;
}

// Return a connection to a process; a negative error number if there is none.
int connect_to(uint32_t pid) {
  Connections &connections = Connections::get();
  if (const auto entry = connections.open.find(pid); entry != connections.open.end())
    return entry->second;
  const std::string path = debug_socket(pid);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return -ENAMETOOLONG;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (made >= 0)
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) // the latter is also for `connect`
      setsockopt(made, SOL_SOCKET, option, &kPatience, sizeof kPatience);
  if (made >= 0 && connect(made, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0) {
    connections.open[pid] = made;
    return made;
  }
  const bool is_late = errno == EAGAIN;
  if (made >= 0)
    close(made);
  if (is_late)
    return no_answer(pid);
  if (kill(static_cast<pid_t>(pid), 0) == 0)
    std::fprintf(stderr,
                 "luthier: process %u cannot be debugged: it is no program of this run, or its ROCm runtime has not "
                 "started yet\n",
                 pid);
  return -ESRCH;
}

// Repeat a call that a signal has interrupted.
ssize_t uninterrupted(const auto &call) {
  ssize_t size;
  do {
    size = call();
  } while (size < 0 && errno == EINTR);
  return size;
}

// Send a request with its data, and receive the answer in their place. Return 0; a negative error number if the process
// has ended or does not answer.
int exchange(int connection, DebugMessage &message, std::vector<char> &data, int file) {
  message.size = data.size();
  iovec parts[] = {{&message, sizeof message}, {data.data(), data.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr outgoing{};
  outgoing.msg_iov = parts;
  outgoing.msg_iovlen = 2;
  if (file >= 0) {
    outgoing.msg_control = control;
    outgoing.msg_controllen = sizeof control;
    cmsghdr *head = CMSG_FIRSTHDR(&outgoing);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &file, sizeof file);
  }
  if (uninterrupted([&] { return sendmsg(connection, &outgoing, MSG_NOSIGNAL); }) < 0)
    return errno == EAGAIN ? no_answer(message.arguments.pid) : -ESRCH;
  std::vector<char> buffer(kMostDebugBytes);
  const ssize_t size = uninterrupted([&] { return recv(connection, buffer.data(), buffer.size(), 0); });
  if (size < 0 && errno == EAGAIN)
    return no_answer(message.arguments.pid);
  if (size < static_cast<ssize_t>(sizeof message))
    return -ESRCH;
  std::memcpy(&message, buffer.data(), sizeof message);
  data.assign(buffer.begin() + sizeof message, buffer.begin() + size);
  return 0;
}

// A part of the debugger's memory that a request reads and its answer writes.
struct UserData {
  uint64_t address = 0, size = 0;
  bool is_sent = false;
};

UserData data_of(const kfd::DebugTrap &a) {
  switch (a.operation) {
  case kfd::DebugOperation::kEnable:
    return {a.enable.info, a.enable.info_size, false};
  case kfd::DebugOperation::kSuspendQueues:
    return {a.suspend.ids, uint64_t{a.suspend.count} * sizeof(uint32_t), true};
  case kfd::DebugOperation::kResumeQueues:
    return {a.resume.ids, uint64_t{a.resume.count} * sizeof(uint32_t), true};
  case kfd::DebugOperation::kQueryExceptionInfo:
    return {a.exception.info, a.exception.info_size, false};
  case kfd::DebugOperation::kGetQueueSnapshot:
    return {a.snapshot.entries, uint64_t{a.snapshot.count} * a.snapshot.entry_size, false};
  default:
    return {};
  }
}

} // namespace

int KernelDriver::enable_runtime(kfd::RuntimeEnable &a) {
  if (!lets_debug())
    return -ENODEV;
  std::lock_guard lock(process_.mutex);
  process_.runtime = a.mode & kfd::kEnableRuntime ? a.r_debug : 0;
  if (process_.runtime && !process_.debug_server) {
    process_.debug_server = std::make_unique<DebugServer>(process_);
    system_.debugging.enable();
  }
  a.capabilities = kfd::kDumpsWaves; // no core file has waves, and the runtime writes none
  return 0;
}

int KernelDriver::get_devices(kfd::DebugTrap &a) const {
  const Engine &engine = system_.service.setup().engine;
  const uint32_t size = a.snapshot.entry_size;
  for (unsigned index = 0; index < std::min<size_t>(a.snapshot.count, system_.gpus().size()); ++index) {
    const Gpu &gpu = system_.gpus()[index];
    kfd::DeviceSnapshot row{};
    row.lds_base = engine.shared_base;
    row.lds_limit = engine.shared_base + 0xFFFF'FFFF;
    row.scratch_base = engine.private_base;
    row.scratch_limit = engine.private_base + 0xFFFF'FFFF;
    row.gpuvm_base = kGpuMemoryBase;
    row.gpuvm_limit = kGpuMemoryLimit;
    row.gpu_id = gpu_id_of(index + 1);
    row.location_id = (index + 1) << 8;
    row.vendor_id = topology::kVendorId;
    row.device_id = gpu.device_id;
    row.gfx_target_version = gpu.engine_major * 10000 + gpu.engine_minor * 100 + gpu.engine_stepping;
    row.simd_count = gpu.units * gpu.simds_per_unit;
    row.max_waves_per_simd = gpu.waves_per_simd;
    row.array_count = row.simd_arrays_per_engine = row.num_xcc = 1;
    row.capability = device_property(index + 1, "capability");
    row.debug_prop = device_property(index + 1, "debug_prop");
    if (!copy_to_user(a.snapshot.entries + uint64_t{index} * size, &row, std::min<size_t>(size, sizeof row)))
      return -EFAULT;
  }
  a.snapshot.count = system_.gpus().size();
  a.snapshot.entry_size = std::min<uint32_t>(size, sizeof(kfd::DeviceSnapshot));
  return 0;
}

int KernelDriver::debug(kfd::DebugTrap &a) {
  if (!lets_debug())
    return -ENODEV;
  if (a.pid == static_cast<uint32_t>(getpid()))
    return -EPERM;
  if (a.operation == kfd::DebugOperation::kGetDeviceSnapshot)
    return get_devices(a);
  std::lock_guard lock(Connections::get().mutex);
  const int connection = connect_to(a.pid);
  if (connection < 0)
    return connection;
  const UserData user = data_of(a);
  if (user.is_sent && user.size > kMostDebugBytes / 2)
    return -EINVAL;
  std::vector<char> data(user.is_sent ? user.size : 0);
  if (!copy_from_user(data.data(), user.address, data.size()))
    return -EFAULT;
  DebugMessage message{0, 0, a};
  const bool is_begin = a.operation == kfd::DebugOperation::kEnable;
  const int error = exchange(connection, message, data, is_begin ? static_cast<int>(a.enable.notifier) : -1);
  if (error || a.operation == kfd::DebugOperation::kDisable) {
    close(connection);
    Connections::get().open.erase(a.pid);
  }
  if (error)
    return error;
  a = message.arguments;
  const size_t written = std::min<size_t>(data.size(), user.size);
  return !written || copy_to_user(user.address, data.data(), written) ? message.result : -EFAULT;
}

} // namespace luthier
