#include "turns.h"

#include <chrono>

namespace luthier {

namespace {

// No launch is waited for longer than that: it may be one that waits for the next.
constexpr auto kPatience = std::chrono::seconds(60), kPatienceAtExit = std::chrono::seconds(5);

} // namespace

Turn::Turn(Runtime &runtime, Client &client, Faults &faults, unsigned gpu)
    : runtime_(runtime), client_(client), faults_(faults), gpu_(gpu) {
  runtime_.check(runtime_.core.hsa_signal_create_fn(1, 0, nullptr, &signal_), "cannot make a signal");
}

void Turn::begin(uint64_t row, uint64_t number) {
  std::unique_lock lock(mutex_);
  if (!ended_.wait_for(lock, kPatience, [&] { return !busy_; }))
    throw Failure(
        "a launch did not wait for the end of the one before it, since that did not end: tools are not told of it");
  busy_ = true;
  row_ = row;
  number_ = number;
}

hsa_barrier_and_packet_t Turn::watch() {
  runtime_.core.hsa_signal_store_relaxed_fn(signal_, 1);
  runtime_.check(runtime_.amd.hsa_amd_signal_async_handler_fn(signal_, HSA_SIGNAL_CONDITION_EQ, 0, on_end, this),
                 "cannot wait for the end of a launch");
  hsa_barrier_and_packet_t packet{};
  packet.header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE | 1 << HSA_PACKET_HEADER_BARRIER |
                  HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
                  HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
  packet.completion_signal = signal_;
  return packet;
}

void Turn::give_up() {
  std::lock_guard lock(mutex_);
  busy_ = false;
  ended_.notify_all();
}

bool Turn::on_end(hsa_signal_value_t, void *data) {
  auto &self = *static_cast<Turn *>(data);
  try {
    self.client_.ended(self.gpu_, self.row_, self.number_);
  } catch (const std::exception &problem) {
    self.faults_.tell(problem.what());
  }
  self.give_up();
  return false; // each launch waits anew
}

void Turn::finish() {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, kPatienceAtExit, [&] { return !busy_; });
}

} // namespace luthier
