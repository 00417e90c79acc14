#include "wire.h"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "failure.h"

namespace luthier {

void check_mapping(const char (&digest)[64], const char *part, const char *what) {
  if (std::memcmp(digest, kDigest, sizeof digest) != 0)
    throw Failure(std::string(part) + " and the Luthier service that made " + what +
                  " were built from different sources: " + kRemedy);
}

const void *Reader::take(uint64_t size) {
  if (text_.size() - at_ < size)
    throw Failure("the Luthier service sent a message that is too short");
  at_ += size;
  return text_.data() + at_ - size;
}

uint64_t Reader::number() {
  uint64_t value;
  std::memcpy(&value, take(sizeof value), sizeof value);
  return value;
}

std::string Reader::bytes() {
  const uint64_t size = number();
  return {static_cast<const char *>(take(size)), size};
}

Channel::Channel(const char *path) : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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
  pollfd ended{socket_, 0, 0}; // asked for nothing, it tells of the end alone
  while (poll(&ended, 1, -1) < 0 && (errno == EINTR || errno == EAGAIN)) {
  }
}

void Channel::send(wire::Request kind, const std::string &payload, int fd) {
  uint64_t header[2] = {static_cast<uint64_t>(kind), payload.size()};
  std::string data(reinterpret_cast<char *>(header), sizeof header);
  data += payload;
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

std::string Channel::receive(int &fd) {
  fd = -1;
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
          std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
      data += count;
      size -= count;
    }
  };
  uint64_t size = 0;
  fill(reinterpret_cast<char *>(&size), sizeof size);
  std::string payload(size, '\0');
  fill(payload.data(), size);
  return payload;
}

} // namespace luthier
