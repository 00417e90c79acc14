// Messages to and from the service of `luthier run`: numbers of 64 bits and byte strings with their length, in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wire_layout.h"

namespace luthier {

enum class Request : uint64_t {
  // Of the virtual device:
  kHello = 1,
  kPlan,
  kBind,
  kExplain,
  kShare,
  kAttach,
  kCounts,
  // Of the tool library:
  kInstrument = 16,
  kObject,
  kKernel,
  kBlock,
  kLoaded,
  kFault,
  kCodeObject,
  kLaunch,
  kLaunchEnd,
  kFunctions = 40,
  kDrain,
};
LUTHIER_CHECK_REQUESTS;

// What the first request of a connection begins with: of all that this library and the service must agree about.
std::string_view digest();

class Writer {
public:
  Writer &number(uint64_t value) {
    text_.append(reinterpret_cast<const char *>(&value), sizeof value);
    return *this;
  }
  Writer &bytes(std::string_view data) {
    number(data.size());
    text_.append(data);
    return *this;
  }
  Writer &bytes(const void *data, size_t size) { return bytes({static_cast<const char *>(data), size}); }
  const std::string &text() const { return text_; }

private:
  std::string text_;
};

class Reader {
public:
  explicit Reader(std::string text) : text_(std::move(text)) {}
  uint64_t number();
  std::string bytes();

private:
  std::string text_;
  size_t at_ = 0;
};

// One end of the socket. All functions throw `Failure`.
class Channel {
public:
  explicit Channel(const char *path);
  ~Channel();
  Channel(const Channel &) = delete;

  // Sends a request, with a file descriptor if that is not -1.
  void send(Request kind, const std::string &payload, int fd = -1);
  // The reply, and the file descriptor that came with it, or -1.
  std::string receive(int &fd);
  // Returns when the other end is closed; beside the other functions, on any thread.
  void wait_for_end() const noexcept;

private:
  int socket_;
};

}  // namespace luthier
