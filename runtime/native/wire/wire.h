// Messages to and from the service of `luthier run`, as MessagePack (https://msgpack.org/). Declared in `luthier.wire`.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "agreement.h"

namespace luthier {

// Throw `Failure` if the digest at the beginning of memory from the service differs from that of this library.
void check_mapping(const char (&digest)[64], const char *part, const char *what);

// Return the bytes of elements that are in memory one after the other.
template <typename Elements> std::string_view bytes_of(const Elements &elements) {
  return {reinterpret_cast<const char *>(std::data(elements)), std::size(elements) * sizeof *std::data(elements)};
}

// Writes a message. Bytes and texts must be shorter than 4 GiB; throws `Failure`.
class Writer {
public:
  void put(uint64_t value);
  void put(bool value) { text_ += value ? '\xc3' : '\xc2'; }
  void put(std::string_view bytes) { put_block('\xc6', bytes); }
  void put(const std::string &text) { put_block('\xdb', text); }
  void put(wire::File file);
  template <typename Element> void put(const std::vector<Element> &list) {
    put_size('\xdd', list.size());
    for (const Element &element : list)
      put(element);
  }
  template <typename Row> void put(const wire::Rows<Row> &rows) { put(bytes_of(rows)); }
  template <typename Message> void put(const Message &message) {
    Message::fields(message, [this](const auto &...field) {
      put_size('\xdd', sizeof...(field));
      (put(field), ...);
    });
  }
  const std::string &text() const { return text_; }
  int file() const { return file_; }

private:
  void put_size(char kind, uint64_t size);
  void put_block(char kind, std::string_view data);

  std::string text_;
  int file_ = -1;
};

// Reads a message, and owns the file that came with it until that is read. All functions throw `Failure`.
class Reader {
public:
  Reader(std::string text, int file) : text_(std::move(text)), file_(file) {}
  ~Reader();
  Reader(const Reader &) = delete;

  void get(uint64_t &value);
  void get(bool &value);
  void get(std::string &value);
  void get(wire::File &value);
  void get(wire::Done &) { take(1); } // nil
  template <typename Element> void get(std::vector<Element> &list) {
    list.clear();
    for (uint64_t left = get_array(); left > 0; --left)
      get(list.emplace_back());
  }
  template <typename Message> void get(Message &message) {
    Message::fields(message, [this](auto &...field) {
      check(get_array() == sizeof...(field));
      (get(field), ...);
    });
  }
  // Return the number of elements of the array that follows.
  uint64_t get_array();
  static void check(bool is_right);

private:
  uint64_t get_number(unsigned size);
  const char *take(uint64_t size);

  std::string text_;
  size_t at_ = 0;
  int file_;
};

// A connection to the service. Safe from several threads; throws `Failure`.
class Channel {
public:
  // Called with the C functions that machine code calls, before the request that reports them returns.
  using Imported = std::function<void(const std::vector<std::string> &)>;

  explicit Channel(const char *path, Imported imported = {});
  ~Channel();
  Channel(const Channel &) = delete;

  // Return the reply to a request; throws `Failure` with the reason if the service refuses it.
  template <typename Request> typename Request::Reply ask(const Request &request) {
    Writer message;
    message.put(request);
    std::lock_guard lock(mutex_);
    send(Request::kRequest, message);
    Reader reply = receive();
    begin(reply);
    typename Request::Reply answer{};
    reply.get(answer);
    return answer;
  }
  // Return when the other end is closed. May run beside the other functions, on any thread.
  void wait_for_end() const noexcept;

private:
  void send(uint64_t kind, const Writer &message);
  Reader receive();
  void begin(Reader &reply);

  const int socket_;
  const Imported imported_;
  std::mutex mutex_;
};

} // namespace luthier
