#include "client.h"

#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#include "failure.h"

namespace luthier {

Client::Client() : owner_(getpid()) {
  const char *path = std::getenv("LUTHIER_RUN_SOCKET");
  if (!path)
    throw Failure("it works under `luthier run` only");
  channel_ = std::make_unique<Channel>(path);
  int fd = -1;
  Reader reply = ask(Request::kInstrument, Writer().number(getpid()).text(), &fd);
  selection_.first = reply.number();
  selection_.end = reply.number();
  selection_.step = reply.number();
  selection_.unique_grid = reply.number() != 0;
  row_count_ = reply.number();
  void *rows = fd < 0 ? MAP_FAILED
                      : mmap(nullptr, row_count_ * sizeof(Row), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0)
    close(fd);
  if (rows == MAP_FAILED)
    throw Failure("cannot map the service's memory");
  rows_ = static_cast<Row *>(rows);
}

bool Client::is_own() const { return getpid() == owner_; }

Reader Client::ask(Request kind, const std::string &payload, int *received) {
  if (!is_own())
    throw Failure("a forked process uses the GPU of the process it comes from");
  std::lock_guard lock(mutex_);
  int attached = -1;
  channel_->send(kind, payload);
  Reader reply(channel_->receive(attached));
  if (received)
    *received = attached;
  else if (attached >= 0)
    close(attached);
  if (reply.number() != 0)
    throw Failure(reply.bytes());
  return reply;
}

uint64_t Client::object(std::string_view uri, std::string_view bytes) {
  return ask(Request::kObject, Writer().bytes(uri).bytes(bytes).text()).number();
}

Answer Client::kernel(unsigned gpu, uint64_t object, uint64_t descriptor) {
  Reader reply = ask(Request::kKernel, Writer().number(gpu).number(object).number(descriptor).text());
  Answer answer;
  const uint64_t row = reply.number();
  if (row < row_count_)
    answer.row = rows_ + row;
  answer.name = reply.bytes();
  answer.symbol = reply.bytes();
  answer.object = reply.bytes();
  for (uint64_t left = reply.number(); left > 0; --left) {
    External external{reply.bytes(), 0};
    external.block = reply.number();
    answer.externals.push_back(std::move(external));
  }
  return answer;
}

BlockFile Client::block(unsigned gpu, uint64_t number) {
  BlockFile file{-1, 0};
  file.size = ask(Request::kBlock, Writer().number(gpu).number(number).text(), &file.fd).number();
  if (file.fd < 0)
    throw Failure("the service sent no memory for a tool's variables");
  return file;
}

void Client::tell(std::string_view fault) { ask(Request::kFault, Writer().bytes(fault).text()); }

}  // namespace luthier
