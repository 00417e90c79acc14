// Messages to and from the service of `luthier run`: numbers of 64 bits and byte strings with their length, in order.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "agreement.h"

namespace luthier {

// Throws `Failure` if memory that the service made begins with another digest than that of this library.
void check_mapping(const char (&digest)[64], const char *part, const char *what);

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
  // The numbers of a message.
  template <typename Message> Writer &numbers(const Message &message) {
    text_.append(reinterpret_cast<const char *>(&message), sizeof message);
    return *this;
  }
  const std::string &text() const { return text_; }

private:
  std::string text_;
};

class Reader {
public:
  explicit Reader(std::string text) : text_(std::move(text)) {}
  uint64_t number();
  std::string bytes();
  // The numbers of a message.
  template <typename Message> Message numbers() {
    Message message;
    std::memcpy(&message, take(sizeof message), sizeof message);
    return message;
  }

private:
  const void *take(uint64_t size);

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
  void send(wire::Request kind, const std::string &payload, int fd = -1);
  // The reply, and the file descriptor that came with it, or -1.
  std::string receive(int &fd);
  // Returns when the other end is closed; beside the other functions, on any thread.
  void wait_for_end() const noexcept;

private:
  int socket_;
};

} // namespace luthier
