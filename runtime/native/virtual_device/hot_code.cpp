#include "hot_code.h"

#include <chrono>
#include <sys/prctl.h>
#include <thread>

#include "thread_pool.h"

namespace luthier {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPeriod{50};
constexpr unsigned kShare = 50; // checks may take 1/kShare of the time
constexpr unsigned kQuiet = 20; // periods without new hot code, after which the thread waits for the next launch
constexpr uint64_t kFrequent = 4096;

} // namespace

void HotCode::launched() {
  if (!launched_.exchange(true)) // so that not each of thousands of launches wakes the thread
    launched_.notify_one();
  std::call_once(begun_, [this] {
    quiet_thread([this] { watch(); }).detach(); // as the system, it lasts as long as the process
  });
}

void HotCode::watch() {
  prctl(PR_SET_NAME, "luthier-hot");
  try {
    for (;;) {
      launched_.wait(false);
      launched_ = false;
      for (unsigned quiet = 0; quiet < kQuiet;) {
        const auto began = Clock::now();
        quiet = look() ? 0 : quiet + 1;
        const auto took = Clock::now() - began;
        std::this_thread::sleep_for(std::max<Clock::duration>(kPeriod, took * kShare));
      }
    }
  } catch (const std::exception &) { // the service has ended, and makes no more functions
    return;
  }
}

// Return whether more was executed since the last check.
bool HotCode::look() {
  const Tally tally = ExecutionCounters::get().take_frequent(kFrequent);
  uint64_t sum = 0;
  for (const auto &[code, records] : tally)
    for (const auto &[record, executed] : records)
      sum += executed.count;
  const bool more = sum > reported_; // counts of sampled launches are gone when these end
  if (more)
    service_.ask(wire::Hot{counts_of(tally)});
  reported_ = sum;
  ExecutionCounters::get().take_runs();
  return more;
}

} // namespace luthier
