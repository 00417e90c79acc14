#include "wire.h"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <span>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "failure.h"

namespace luthier {

void check_mapping(const char (&digest)[64], const char *part, const char *what) {
  if (std::memcmp(digest, kDigest, sizeof digest) != 0)
    throw Failure(std::string(part) + " and the Luthier service that made " + what +
                  " were built from different sources: " + kRemedy);
}

void Writer::put_size(char kind, uint64_t size) {
  if (size > UINT32_MAX)
    throw Failure(std::to_string(size) +
                  " bytes or elements do not fit in a message to the Luthier service: the limit is 2^32 - 1");
  const uint32_t swapped = __builtin_bswap32(size);
  text_ += kind;
  text_ += bytes_of(std::span(&swapped, 1));
}

void Writer::put_block(char kind, std::string_view data) {
  put_size(kind, data.size());
  text_ += data;
}

void Writer::put(uint64_t value) {
  const uint64_t swapped = __builtin_bswap64(value);
  text_ += '\xcf';
  text_ += bytes_of(std::span(&swapped, 1));
}

void Writer::put(wire::File file) {
  put(uint64_t{0}); // its place among the files of the message, which has no other
  file_ = file.fd;
}

Reader::~Reader() {
  if (file_ >= 0)
    close(file_);
}

void Reader::check(bool is_right) {
  if (!is_right)
    throw Failure("the Luthier service sent a malformed message");
}

const char *Reader::take(uint64_t size) {
  check(text_.size() - at_ >= size);
  at_ += size;
  return text_.data() + at_ - size;
}

// Return the number that bytes stand for, most significant first.
uint64_t Reader::get_number(unsigned size) {
  uint64_t value = 0;
  for (const char byte : std::string_view(take(size), size))
    value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

void Reader::get(uint64_t &value) {
  const uint64_t kind = get_number(1);
  check(kind < 0x80 || (kind >= 0xcc && kind <= 0xcf));
  value = kind < 0x80 ? kind : get_number(1 << (kind - 0xcc));
}

void Reader::get(bool &value) {
  const uint64_t kind = get_number(1);
  check(kind == 0xc2 || kind == 0xc3);
  value = kind == 0xc3;
}

// C++ does not distinguish texts from blocks of bytes.
void Reader::get(std::string &value) {
  const uint64_t kind = get_number(1);
  uint64_t size = kind & 0x1f;
  if (kind >= 0xc4 && kind <= 0xc6)
    size = get_number(1 << (kind - 0xc4));
  else if (kind >= 0xd9 && kind <= 0xdb)
    size = get_number(1 << (kind - 0xd9));
  else
    check(kind >> 5 == 0xa0 >> 5);
  value.assign(take(size), size);
}

void Reader::get(wire::File &value) {
  check(get_number(1) == 0 && file_ >= 0);
  value.fd = std::exchange(file_, -1);
}

uint64_t Reader::get_array() {
  const uint64_t kind = get_number(1);
  check(kind >> 4 == 0x9 || kind == 0xdc || kind == 0xdd);
  const uint64_t count = kind >> 4 == 0x9 ? kind & 0xf : get_number(kind == 0xdc ? 2 : 4);
  check(count <= text_.size() - at_); // an element has at least one byte
  return count;
}

Channel::Channel(const char *path, Imported imported)
    : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), imported_(std::move(imported)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t path_size = std::strlen(path) + 1;
  if (socket_ < 0 || path_size > sizeof address.sun_path)
    throw Failure(std::string("cannot use the socket ") + path);
  std::memcpy(address.sun_path, path, path_size);
  ucred peer{};
  socklen_t length = sizeof peer;
  const char *problem = nullptr;
  if (connect(socket_, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0)
    problem = std::strerror(errno);
  else if (getsockopt(socket_, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid())
    problem = "it belongs to another user";
  if (problem) {
    close(socket_);
    throw Failure(std::string("cannot reach the Luthier service at ") + path + ": " + problem);
  }
}

Channel::~Channel() { close(socket_); }

void Channel::wait_for_end() const noexcept {
  pollfd ended{socket_, 0, 0}; // without events, poll reports only the end
  while (poll(&ended, 1, -1) < 0 && (errno == EINTR || errno == EAGAIN)) {
  }
}

// A reply is an array: the reason why the request is refused, or nil; the imports; and the answer.
void Channel::begin(Reader &reply) {
  std::string problem;
  std::vector<std::string> imports;
  Reader::check(reply.get_array() == 3);
  reply.get(problem);
  reply.get(imports);
  if (!problem.empty())
    throw Failure(problem);
  if (!imports.empty())
    imported_(imports);
}

void Channel::send(uint64_t kind, const Writer &message) {
  const uint64_t header[] = {kind, message.text().size()};
  std::string data(bytes_of(header));
  data += message.text();
  const int fd = message.file();
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  size_t sent = 0;
  while (sent < data.size()) {
    iovec part{data.data() + sent, data.size() - sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0 && sent == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr *attached = CMSG_FIRSTHDR(&message);
      attached->cmsg_level = SOL_SOCKET;
      attached->cmsg_type = SCM_RIGHTS;
      attached->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(attached), &fd, sizeof fd);
    }
    const ssize_t count = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      throw Failure("the Luthier service has ended");
    sent += count;
  }
}

Reader Channel::receive() {
  int file = -1;
  const auto fill = [&](char *data, size_t size) {
    while (size > 0) {
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
      iovec part{data, size};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      const ssize_t count = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
      if (count < 0 && errno == EINTR)
        continue;
      if (count <= 0)
        throw Failure("the Luthier service has ended");
      for (cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
          std::memcpy(&file, CMSG_DATA(part), sizeof file);
      data += count;
      size -= count;
    }
  };
  uint64_t size = 0;
  fill(reinterpret_cast<char *>(&size), sizeof size);
  std::string payload(size, '\0');
  fill(payload.data(), size);
  return {std::move(payload), file};
}

} // namespace luthier
