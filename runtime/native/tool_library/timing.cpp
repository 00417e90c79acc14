#include "timing.h"

#include <ctime>

namespace luthier {

namespace {

// Launches that are timed at once; a limit, so that signals do not fill memory.
constexpr size_t kMost = 1 << 16;

// Pairs of readings of the two clocks. The closest is used: the process may be preempted between readings.
constexpr int kReadings = 16;

} // namespace

Timing::Timing(Runtime &runtime) : runtime_(runtime) {
  uint64_t frequency = 0;
  runtime.check(runtime.core.hsa_system_get_info_fn(HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY, &frequency),
                "the frequency of its clock is not known");
  if (frequency)
    period_ = 1e9 / static_cast<double>(frequency);
  uint64_t closest = UINT64_MAX;
  for (int reading = 0; reading < kReadings; ++reading) {
    timespec wall;
    const uint64_t before = now();
    clock_gettime(CLOCK_REALTIME, &wall);
    const uint64_t between = now() - before;
    if (between >= closest)
      continue;
    closest = between;
    ticks_ = before + between / 2;
    nanoseconds_ = wall.tv_sec * 1'000'000'000ull + wall.tv_nsec;
  }
}

uint64_t Timing::now() const {
  uint64_t ticks = 0;
  runtime_.core.hsa_system_get_info_fn(HSA_SYSTEM_INFO_TIMESTAMP, &ticks);
  return ticks;
}

void Timing::watch(unsigned gpu, hsa_kernel_dispatch_packet_t &packet, LedgerRecord &record) {
  std::lock_guard lock(mutex_);
  if (finished_) {
    never_ends(record);
    return;
  }
  collect(4);
  hsa_signal_t signal = packet.completion_signal;
  const bool ours = !signal.handle;
  if (ours && !free_.empty()) {
    signal = free_.back();
    free_.pop_back();
    runtime_.core.hsa_signal_silent_store_relaxed_fn(signal, 1);
  } else if (pending_.size() >= kMost ||
             (ours && runtime_.amd.hsa_amd_signal_create_fn(1, 0, nullptr, HSA_AMD_SIGNAL_AMD_GPU_ONLY, &signal) !=
                          HSA_STATUS_SUCCESS)) {
    never_ends(record);
    return;
  }
  packet.completion_signal = signal;
  const auto place = pending_.insert(pending_.end(), {&record, runtime_.gpus()[gpu], signal, now(), ours});
  if (ours)
    return;
  const auto [entry, fresh] = of_program_.emplace(signal.handle, place);
  if (!fresh) { // it counts several launches
    end(entry->second, false);
    of_program_[signal.handle] = place;
  }
}

void Timing::reused(hsa_signal_t signal) {
  if (!signal.handle)
    return;
  std::lock_guard lock(mutex_);
  const auto entry = of_program_.find(signal.handle);
  if (entry != of_program_.end())
    end(entry->second, true);
}

void Timing::collect(size_t most) {
  for (size_t left = std::min(most, pending_.size()); left > 0; --left) {
    const auto first = pending_.begin();
    if (runtime_.core.hsa_signal_load_relaxed_fn(first->signal) <= 0)
      end(first, true);
    else
      pending_.splice(pending_.end(), pending_, first);
  }
}

void Timing::end(Place place, bool done) {
  const Pending pending = *place;
  hsa_amd_profiling_dispatch_time_t time{};
  if (done &&
      runtime_.amd.hsa_amd_profiling_get_dispatch_time_fn(pending.agent, pending.signal, &time) == HSA_STATUS_SUCCESS &&
      time.start >= pending.written && time.end >= time.start) {
    const auto moment = [&](uint64_t ticks) {
      return nanoseconds_ + static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(ticks - ticks_)) * period_);
    };
    // The clocks agree to some hundred nanoseconds, and wall clocks are set: nothing begins before it was written.
    const uint64_t begin = moment(time.start);
    const uint64_t late = pending.record->time > begin ? pending.record->time - begin : 0;
    ran(*pending.record, begin + late, moment(time.end) + late);
  } else {
    never_ends(*pending.record);
  }
  if (pending.ours)
    free_.push_back(pending.signal);
  else
    of_program_.erase(pending.signal.handle);
  pending_.erase(place);
}

void Timing::finish() {
  std::lock_guard lock(mutex_);
  if (finished_)
    return;
  finished_ = true;
  collect(pending_.size());
  for (const Pending &pending : pending_)
    never_ends(*pending.record);
  pending_.clear();
  of_program_.clear();
}

} // namespace luthier
