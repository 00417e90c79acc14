#include "client.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>

#include "failure.h"

namespace luthier {

using wire::Request;

namespace {

// Return the command line of this process, its parts separated by blanks.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  while (!text.empty() && !text.back())
    text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

} // namespace

Client::Client() : owner_(getpid()) {
  const char *path = std::getenv(wire::kToolsSocketVariable);
  if (!path)
    throw Failure("it works under `luthier run` only");
  channel_ = std::make_unique<Channel>(path);
  int fd = -1;
  const Writer hello = Writer().bytes(kDigest).bytes(command_line());
  Reader reply = ask(Request::kInstrument, hello.text(), &fd);
  const auto told = reply.numbers<wire::Wishes>();
  selection_ = {told.first, told.end, told.step, told.unique_grid != 0};
  wishes_.launches = told.launches != 0;
  wishes_.code_objects = told.code_objects != 0;
  wishes_.ranges = told.ranges != 0;
  for (auto *patterns : {&wishes_.hsa, &wishes_.hip, &wishes_.memory})
    for (uint64_t left = reply.number(); left > 0; --left)
      patterns->push_back(reply.bytes());
  const uint64_t size = Ledger::size(told.rows, told.records);
  void *memory = fd < 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0)
    close(fd);
  if (memory == MAP_FAILED)
    throw Failure("cannot map the service's memory");
  try {
    check_mapping(static_cast<const wire::LedgerHead *>(memory)->digest, kToolLibrary, "the ledger of launches");
  } catch (const Failure &problem) {
    tell(problem.what()); // the run's summary says, too, that nothing was counted here
    throw;
  }
  ledger_ = Ledger(memory, told.rows, told.records);
}

bool Client::is_own() const { return getpid() == owner_; }

Reader Client::ask(wire::Request kind, const std::string &payload, int *received, int sent) {
  if (!is_own())
    throw Failure("a forked process uses the GPU of the process it comes from");
  std::lock_guard lock(mutex_);
  int attached = -1;
  channel_->send(kind, payload, sent);
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
  Reader reply = ask(Request::kKernel, Writer().numbers(wire::FindKernel{gpu, object, descriptor}).text());
  Answer answer;
  answer.row = reply.number();
  answer.name = reply.bytes();
  answer.symbol = reply.bytes();
  answer.arguments = reply.number();
  answer.object = reply.bytes();
  for (uint64_t left = reply.number(); left > 0; --left)
    answer.blocks.push_back(reply.bytes());
  if (!answer.object.empty())
    answer.limits = reply.numbers<wire::Limits>();
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
  message.numbers(wire::Loaded{row, delta, original_delta, blocks.size()});
  for (uint64_t address : blocks)
    message.number(address);
  ask(Request::kLoaded, message.text());
}

void Client::code_object(unsigned gpu, uint64_t object) {
  ask(Request::kCodeObject, Writer().numbers(wire::LoadedObject{gpu, object}).text());
}

wire::LaunchAnswer Client::launch(unsigned gpu, uint64_t row, uint64_t number, bool instrumented,
                                  const hsa_kernel_dispatch_packet_t &packet, std::string_view arguments) {
  const wire::Launch launch{
      .gpu = gpu,
      .row = row,
      .number = number,
      .chosen = instrumented,
      .grid_x = packet.grid_size_x,
      .grid_y = packet.grid_size_y,
      .grid_z = packet.grid_size_z,
      .block_x = packet.workgroup_size_x,
      .block_y = packet.workgroup_size_y,
      .block_z = packet.workgroup_size_z,
      .group_segment = packet.group_segment_size,
      .private_segment = packet.private_segment_size,
  };
  return ask(Request::kLaunch, Writer().numbers(launch).bytes(arguments).text()).numbers<wire::LaunchAnswer>();
}

void Client::launch_memory(const wire::LaunchMemory &launch, const std::string &device, const std::string &problem,
                           const LaunchMemory *memory) {
  const auto ranges = memory ? memory->ranges() : std::vector<LaunchMemory::Range>();
  Writer message;
  message.numbers(launch).bytes(device).bytes(problem).bytes(ranges.data(), ranges.size() * sizeof ranges[0]);
  ask(Request::kLaunchMemory, message.text(), nullptr, memory ? memory->file() : -1);
}

void Client::ended(unsigned gpu, uint64_t row, uint64_t number) {
  ask(Request::kLaunchEnd, Writer().numbers(wire::LaunchEnd{gpu, row, number}).text());
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

} // namespace luthier
