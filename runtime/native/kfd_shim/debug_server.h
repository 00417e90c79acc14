// Requests of a debugger, which another process makes with the number of this one. They come by a socket in the folder
// of the run.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "requests.h"

namespace luthier {

struct Process;

// A request or its answer, which is followed by `size` bytes.
struct DebugMessage {
  int32_t result;
  uint32_t size;
  kfd::DebugTrap arguments;
};
constexpr size_t kMostDebugBytes = 64 << 10; // of a message with what follows it

// Return a property of a device, as the files say that describe it to the runtime; 0 if it has none.
uint32_t device_property(unsigned node, const char *name);
// Return whether the run is one for debuggers.
bool lets_debug();
// Return the path of a process's socket.
std::string debug_socket(uint32_t pid);

class DebugServer {
public:
  // Listen. Throws `Failure`.
  explicit DebugServer(Process &process);

private:
  void serve();
  void serve(int connection);
  int answer(int connection, kfd::DebugTrap &a, std::vector<char> &data, int &file);
  int enable(int connection, kfd::DebugTrap &a, std::vector<char> &data, int &file);
  template <typename Does> int each_queue(uint32_t count, std::vector<char> &data, const char *done, const Does &does);
  int suspend(kfd::DebugTrap &a, std::vector<char> &data);
  int resume(kfd::DebugTrap &a, std::vector<char> &data);
  int query_event(kfd::DebugTrap &a);
  int snapshot(kfd::DebugTrap &a, std::vector<char> &data);
  void end_session();

  Process &process_;
  int listener_ = -1;
  std::mutex answering_;                  // of what follows
  int attached_ = -1;                     // the connection that has the session
  std::set<uint64_t> suspended_;          // queues
  std::set<kfd::DebugOperation> refused_; // of which users have been told
  std::thread thread_;                    // it ends with the process
};

} // namespace luthier
