#include "debug_server.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "process.h"

namespace luthier {

namespace {

constexpr uint32_t kEnabled = 1;

template <typename Row> void append(std::vector<char> &data, const Row &row, size_t size) {
  const char *bytes = reinterpret_cast<const char *>(&row);
  data.insert(data.end(), bytes, bytes + std::min(size, sizeof row));
  data.resize(data.size() + size - std::min(size, sizeof row));
}

std::string files() {
  const char *folder = std::getenv(topology::kFilesVariable);
  return folder ? folder : "";
}

} // namespace

uint32_t device_property(unsigned node, const char *name) {
  std::ifstream file(files() + "/" + topology::kNodes + "/nodes/" + std::to_string(node) + "/properties");
  std::string key;
  for (uint64_t value; file >> key >> value;)
    if (key == name)
      return static_cast<uint32_t>(value);
  return 0;
}

bool lets_debug() { return device_property(1, "debug_prop") != 0; }

std::string debug_socket(uint32_t pid) {
  return files() + "/" + topology::kMetadata + "/debugger-" + std::to_string(pid);
}

DebugServer::DebugServer(Process &process) : process_(process) {
  const std::string path = debug_socket(getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw Failure("the path of a run is too long for a debugger's socket: " + path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  unlink(path.c_str()); // of an earlier process with this number
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 ||
      listen(listener_, 4) != 0)
    throw Failure("cannot listen for debuggers at " + path + ": " + std::strerror(errno));
  thread_ = quiet_thread([this] { serve(); });
  thread_.detach();
}

namespace {

// Files that came with a message. They are closed at the end, but for one that is taken.
class Files {
public:
  explicit Files(msghdr &message) {
    for (cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
      for (size_t at = CMSG_LEN(0); is_files(*part) && at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
        int file;
        std::memcpy(&file, reinterpret_cast<const char *>(part) + at, sizeof file);
        all_.push_back(file);
      }
  }
  ~Files() {
    for (const int file : all_)
      if (file >= 0)
        close(file);
  }
  Files(const Files &) = delete;
  Files &operator=(const Files &) = delete;

  // The first; -1: there is none. Who takes it sets it to -1.
  int &first() { return all_.empty() ? none_ : all_[0]; }

private:
  static bool is_files(const cmsghdr &part) { return part.cmsg_level == SOL_SOCKET && part.cmsg_type == SCM_RIGHTS; }
  std::vector<int> all_;
  int none_ = -1;
};

} // namespace

// Each client has a thread, so that a second one is refused while the first has a session.
void DebugServer::serve() {
  for (;;) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0 && errno != EINTR && errno != ECONNABORTED)
      return;
    if (connection >= 0)
      quiet_thread([this, connection] { serve(connection); }).detach();
  }
}

// Answer one debugger until it ends, which ends its session.
void DebugServer::serve(int connection) {
  std::vector<char> buffer(kMostDebugBytes);
  for (;;) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{buffer.data(), buffer.size()};
    msghdr incoming{};
    incoming.msg_iov = &part;
    incoming.msg_iovlen = 1;
    incoming.msg_control = control;
    incoming.msg_controllen = sizeof control;
    const ssize_t size = recvmsg(connection, &incoming, MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR)
      continue;
    if (size <= 0)
      break;
    Files files(incoming);
    DebugMessage message;
    const bool is_cut = incoming.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
    if (size >= static_cast<ssize_t>(sizeof message))
      std::memcpy(&message, buffer.data(), sizeof message);
    if (is_cut || size < static_cast<ssize_t>(sizeof message) || message.size != size - sizeof message) {
      std::fprintf(stderr, "luthier: a debugger has sent a malformed request; its session ends\n");
      break;
    }
    std::vector<char> data(buffer.begin() + sizeof message, buffer.begin() + size);
    try {
      std::lock_guard lock(answering_);
      message.result = answer(connection, message.arguments, data, files.first());
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: a request of a debugger failed: %s\n", problem.what());
      message.result = -EIO;
    }
    message.size = data.size();
    std::vector<char> reply(sizeof message);
    std::memcpy(reply.data(), &message, sizeof message);
    reply.insert(reply.end(), data.begin(), data.end());
    if (send(connection, reply.data(), reply.size(), MSG_NOSIGNAL) < 0)
      break;
  }
  {
    std::lock_guard lock(answering_);
    if (connection == attached_)
      end_session();
  }
  close(connection); // only now, so that no other has its number
}

namespace {

const char *name_of(kfd::DebugOperation operation) {
  switch (operation) {
  case kfd::DebugOperation::kSendRuntimeEvent:
    return "send exceptions to the runtime";
  case kfd::DebugOperation::kSetAddressWatch:
  case kfd::DebugOperation::kClearAddressWatch:
    return "set or clear a watchpoint";
  case kfd::DebugOperation::kQueryExceptionInfo:
    return "query information about an exception";
  default:
    return "unknown";
  }
}

} // namespace

int DebugServer::answer(int connection, kfd::DebugTrap &a, std::vector<char> &data, int &file) {
  using Operation = kfd::DebugOperation;
  Debugging &debugging = process_.system.debugging;
  if (attached_ >= 0 && connection != attached_)
    return -EALREADY;
  if (a.operation != Operation::kEnable && attached_ < 0)
    return -EINVAL;
  switch (a.operation) {
  case Operation::kEnable:
    return enable(connection, a, data, file);
  case Operation::kDisable:
    end_session();
    return 0;
  case Operation::kSetExceptionsEnabled:
    debugging.report(a.reported.exceptions);
    return 0;
  case Operation::kSetWaveLaunchMode:
    if (a.launch.mode > kfd::kHaltWaves)
      return -EINVAL;
    debugging.halt_new_waves(a.launch.mode == kfd::kHaltWaves);
    return 0;
  case Operation::kSetWaveLaunchOverride: // waves trap on nothing but instructions
    if (a.override.enabled)
      return -EPERM;
    a.override.enabled = a.override.supported = 0;
    return 0;
  case Operation::kSetFlags: // all operations are precise here
    a.flags.flags = 0;
    return 0;
  case Operation::kSuspendQueues:
    return suspend(a, data);
  case Operation::kResumeQueues:
    return resume(a, data);
  case Operation::kQueryDebugEvent:
    return query_event(a);
  case Operation::kGetQueueSnapshot:
    return snapshot(a, data);
  default:
    if (refused_.insert(a.operation).second)
      std::fprintf(stderr, "luthier: the virtual device does not have debugger operation %u: %s\n",
                   static_cast<unsigned>(a.operation), name_of(a.operation));
    return -EPERM;
  }
}

int DebugServer::enable(int connection, kfd::DebugTrap &a, std::vector<char> &data, int &file) {
  if (file < 0)
    return -EBADF;
  if (!process_.system.debugging.attach(file, a.enable.exceptions))
    return -EALREADY;
  file = -1; // it is the session's
  attached_ = connection;
  const kfd::RuntimeInfo info{process_.runtime, process_.runtime ? kEnabled : 0, 1};
  data.clear();
  append(data, info, sizeof info);
  a.enable.info_size = sizeof info;
  return 0;
}

// Do something with each queue of a request, whose numbers are in its data; return with how many that was possible.
template <typename Does>
int DebugServer::each_queue(uint32_t count, std::vector<char> &data, const char *done, const Does &does) {
  int good = 0;
  std::vector<uint32_t> ids(std::min<size_t>(count, data.size() / sizeof(uint32_t)));
  std::memcpy(ids.data(), data.data(), ids.size() * sizeof ids[0]);
  std::lock_guard lock(process_.mutex); // no queue is destroyed meanwhile
  for (uint32_t &id : ids) {
    Queue *queue = process_.system.queue(id);
    if (!queue) {
      id |= kfd::kQueueInvalid;
      continue;
    }
    try {
      does(*queue, id);
      ++good;
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: a queue cannot be %s for a debugger: %s\n", done, problem.what());
      id |= kfd::kQueueError;
    }
  }
  std::memcpy(data.data(), ids.data(), ids.size() * sizeof ids[0]);
  return good;
}

int DebugServer::suspend(kfd::DebugTrap &a, std::vector<char> &data) {
  return each_queue(a.suspend.count, data, "suspended", [&](Queue &queue, uint64_t id) {
    if (!suspended_.count(id)) {
      queue.suspend();
      suspended_.insert(id);
    }
    process_.system.debugging.take(id, a.suspend.exceptions);
  });
}

int DebugServer::resume(kfd::DebugTrap &a, std::vector<char> &data) {
  return each_queue(a.resume.count, data, "resumed", [&](Queue &queue, uint64_t id) {
    if (suspended_.erase(id))
      queue.resume();
  });
}

int DebugServer::query_event(kfd::DebugTrap &a) {
  const auto pending = process_.system.debugging.next(a.event.exceptions);
  if (!pending)
    return -EAGAIN;
  a.event.exceptions = pending->exceptions;
  a.event.queue_id = pending->queue;
  std::lock_guard lock(process_.mutex);
  const auto queue = process_.queues.find(pending->queue);
  a.event.gpu_id = queue == process_.queues.end() ? 0 : queue->second.gpu_id;
  return 0;
}

int DebugServer::snapshot(kfd::DebugTrap &a, std::vector<char> &data) {
  const uint32_t size = a.snapshot.entry_size;
  const size_t room = std::min<size_t>(a.snapshot.count, (kMostDebugBytes - sizeof(DebugMessage)) / std::max(size, 1u));
  data.clear();
  std::lock_guard lock(process_.mutex);
  size_t written = 0;
  for (const auto &[id, made] : process_.queues) {
    if (written++ >= room)
      break;
    kfd::QueueSnapshot row{};
    row.exceptions = process_.system.debugging.take(id, a.snapshot.exceptions);
    row.ring_base_address = made.ring_base_address;
    row.write_pointer_address = made.write_pointer_address;
    row.read_pointer_address = made.read_pointer_address;
    row.ctx_save_restore_address = made.ctx_save_restore_address;
    row.queue_id = id;
    row.gpu_id = made.gpu_id;
    row.ring_size = made.ring_size;
    row.queue_type = made.queue_type;
    row.ctx_save_restore_area_size = made.ctx_save_restore_size;
    append(data, row, size);
  }
  a.snapshot.count = process_.queues.size();
  a.snapshot.entry_size = std::min<uint32_t>(size, sizeof(kfd::QueueSnapshot));
  return 0;
}

void DebugServer::end_session() {
  attached_ = -1;
  process_.system.debugging.detach();
  std::lock_guard lock(process_.mutex);
  for (const uint64_t id : std::exchange(suspended_, {}))
    try {
      if (Queue *queue = process_.system.queue(id))
        queue->resume();
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: a queue cannot be resumed after a debugger: %s\n", problem.what());
    }
}

} // namespace luthier
