#include "turns.h"

#include <chrono>

namespace luthier {

namespace {

// The longest wait for a launch: it may itself wait for the next one.
constexpr auto kPatience = std::chrono::seconds(60), kPatienceAtExit = std::chrono::seconds(5);

// A packet that waits for all before it, and makes their writes visible.
hsa_barrier_and_packet_t barrier(hsa_signal_t completion, hsa_signal_t dependency = {}) {
  hsa_barrier_and_packet_t packet{};
  packet.header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE | 1 << HSA_PACKET_HEADER_BARRIER |
                  HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
                  HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
  packet.dep_signal[0] = dependency;
  packet.completion_signal = completion;
  return packet;
}

} // namespace

Turn::Turn(Runtime &runtime, Client &client, Faults &faults, unsigned gpu)
    : runtime_(runtime), client_(client), faults_(faults), gpu_(gpu), signal_(make_signal()) {}

hsa_signal_t Turn::make_signal() {
  hsa_signal_t made{};
  runtime_.check(runtime_.core.hsa_signal_create_fn(1, 0, nullptr, &made), "cannot make a signal");
  return made;
}

void Turn::begin(uint64_t row, uint64_t number) {
  std::unique_lock lock(mutex_);
  if (!ended_.wait_for(lock, kPatience, [&] { return !busy_; }))
    throw Failure("a launch started before the previous one had ended, which took too long: tools do not see it");
  busy_ = true;
  row_ = row;
  number_ = number;
}

// Call a handler when a signal that is 1 now becomes 0.
void Turn::handle(hsa_signal_t signal, hsa_amd_signal_handler handler) {
  runtime_.core.hsa_signal_store_relaxed_fn(signal, 1);
  runtime_.check(runtime_.amd.hsa_amd_signal_async_handler_fn(signal, HSA_SIGNAL_CONDITION_EQ, 0, handler, this),
                 "cannot wait for a launch");
}

Turn::Barriers Turn::capture(const wire::LaunchMemory &launch, const LaunchRoots &roots, uint64_t most) {
  for (hsa_signal_t *signal : {&ready_, &read_, &done_, &read_again_}) {
    if (!signal->handle)
      *signal = make_signal();
    runtime_.core.hsa_signal_store_relaxed_fn(*signal, 1);
  }
  captured_ = {launch, roots, most, nullptr};
  handle(ready_, on_ready);
  return {barrier(ready_), barrier({}, read_)};
}

Turn::Barriers Turn::complete(hsa_signal_t completion) {
  handle(done_, on_done);
  return {barrier(done_), barrier(completion, read_again_)};
}

hsa_barrier_and_packet_t Turn::watch() {
  handle(signal_, on_end);
  return barrier(signal_);
}

void Turn::give_up() {
  std::lock_guard lock(mutex_);
  busy_ = false;
  ended_.notify_all();
}

// The queue waits for what is read here.
bool Turn::on_ready(hsa_signal_value_t, void *data) {
  auto &self = *static_cast<Turn *>(data);
  try {
    self.read_before();
  } catch (const std::exception &problem) {
    self.faults_.tell(problem.what());
  }
  self.runtime_.core.hsa_signal_store_screlease_fn(self.read_, 0);
  return false;
}

void Turn::read_before() {
  tell([&] {
    captured_.memory = std::make_unique<LaunchMemory>(runtime_, runtime_.gpus().at(gpu_), captured_.most);
    captured_.memory->gather(captured_.roots);
  });
}

void Turn::read_after() {
  if (!captured_.memory)
    return;
  captured_.launch.is_after = true;
  tell([&] { captured_.memory->read(); });
  captured_.memory.reset();
}

// Report the memory of the launch, which `read` reads, or why it cannot be read.
void Turn::tell(const std::function<void()> &read) {
  wire::LaunchMemory &launch = captured_.launch;
  try {
    read();
  } catch (const Failure &failure) {
    captured_.memory.reset();
    client_.ask(wire::LaunchUnread{launch.gpu, launch.row, launch.number, failure.what()});
    return;
  }
  launch.device = device_name();
  launch.ranges = captured_.memory->ranges();
  launch.contents.fd = captured_.memory->file();
  client_.ask(launch);
}

// Return the name of the processor, e.g. gfx90a.
std::string Turn::device_name() {
  char name[64]{};
  runtime_.check(runtime_.core.hsa_agent_get_info_fn(runtime_.gpus().at(gpu_), HSA_AGENT_INFO_NAME, name),
                 "cannot ask for a device's name");
  name[sizeof name - 1] = 0;
  return name;
}

// What waits for the launch waits for what is read here.
bool Turn::on_done(hsa_signal_value_t, void *data) {
  auto &self = *static_cast<Turn *>(data);
  try {
    self.read_after();
  } catch (const std::exception &problem) {
    self.faults_.tell(problem.what());
  }
  self.runtime_.core.hsa_signal_store_screlease_fn(self.read_again_, 0);
  return false;
}

bool Turn::on_end(hsa_signal_value_t, void *data) {
  auto &self = *static_cast<Turn *>(data);
  try {
    self.client_.ask(wire::LaunchEnd{self.gpu_, self.row_, self.number_});
  } catch (const std::exception &problem) {
    self.faults_.tell(problem.what());
  }
  self.give_up();
  return false; // each launch waits again
}

void Turn::finish() {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, kPatienceAtExit, [&] { return !busy_; });
}

} // namespace luthier
