#include "client.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>

#include "failure.h"

namespace luthier {

namespace {

// Of this process, its parts separated by blanks.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  while (!text.empty() && !text.back())
    text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

}  // namespace

Client::Client() : owner_(getpid()) {
  const char *path = std::getenv("LUTHIER_RUN_SOCKET");
  if (!path)
    throw Failure("it works under `luthier run` only");
  channel_ = std::make_unique<Channel>(path);
  int fd = -1;
  const Writer hello = Writer().bytes(digest()).number(getpid()).bytes(command_line());
  Reader reply = ask(Request::kInstrument, hello.text(), &fd);
  selection_.first = reply.number();
  selection_.end = reply.number();
  selection_.step = reply.number();
  selection_.unique_grid = reply.number() != 0;
  wishes_.launches = reply.number() != 0;
  wishes_.code_objects = reply.number() != 0;
  for (auto *patterns : {&wishes_.hsa, &wishes_.hip})
    for (uint64_t left = reply.number(); left > 0; --left)
      patterns->push_back(reply.bytes());
  const uint64_t rows = reply.number(), records = reply.number();
  void *memory = fd < 0 ? MAP_FAILED
                        : mmap(nullptr, Ledger::size(rows, records), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0)
    close(fd);
  if (memory == MAP_FAILED)
    throw Failure("cannot map the service's memory");
  ledger_ = Ledger(memory, rows, records);
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
  answer.row = reply.number();
  answer.name = reply.bytes();
  answer.symbol = reply.bytes();
  answer.object = reply.bytes();
  for (uint64_t left = reply.number(); left > 0; --left)
    answer.blocks.push_back(reply.bytes());
  if (!answer.object.empty()) {
    answer.most_private = reply.number();
    answer.most_group = reply.number();
    answer.most_items = reply.number();
  }
  return answer;
}

BlockFile Client::block(unsigned gpu, const std::string &symbol) {
  BlockFile file{-1, 0, {}};
  Reader reply = ask(Request::kBlock, Writer().number(gpu).bytes(symbol).text(), &file.fd);
  file.size = reply.number();
  for (uint64_t left = reply.number(); left > 0; --left)
    file.rings.push_back(reply.number());
  if (file.fd < 0)
    throw Failure("the service sent no memory for a tool's variables");
  return file;
}

void Client::loaded(uint64_t row, uint64_t delta, uint64_t original_delta, const std::vector<uint64_t> &blocks) {
  Writer message;
  message.number(row).number(delta).number(original_delta).number(blocks.size());
  for (uint64_t address : blocks)
    message.number(address);
  ask(Request::kLoaded, message.text());
}

void Client::code_object(unsigned gpu, uint64_t object) {
  ask(Request::kCodeObject, Writer().number(gpu).number(object).text());
}

bool Client::launch(unsigned gpu, uint64_t row, uint64_t number, bool instrumented,
                    const hsa_kernel_dispatch_packet_t &packet) {
  Writer message;
  message.number(gpu).number(row).number(number).number(instrumented);
  message.number(packet.grid_size_x).number(packet.grid_size_y).number(packet.grid_size_z);
  message.number(packet.workgroup_size_x).number(packet.workgroup_size_y).number(packet.workgroup_size_z);
  message.number(packet.group_segment_size).number(packet.private_segment_size);
  return ask(Request::kLaunch, message.text()).number() != 0;
}

void Client::ended(unsigned gpu, uint64_t row, uint64_t number) {
  ask(Request::kLaunchEnd, Writer().number(gpu).number(row).number(number).text());
}

EventFile Client::functions(const Writer &described) {
  EventFile file{-1, 0};
  file.records = ask(Request::kFunctions, described.text(), &file.fd).number();
  if (file.fd < 0)
    throw Failure("the service sent no memory for events of APIs");
  return file;
}

void Client::drain() { ask(Request::kDrain, {}); }

void Client::tell(std::string_view fault) { ask(Request::kFault, Writer().bytes(fault).text()); }

}  // namespace luthier
