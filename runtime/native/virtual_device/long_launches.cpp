#include "long_launches.h"

#include <algorithm>
#include <sys/prctl.h>
#include <thread>

#include "bytes.h"
#include "thread_pool.h"

namespace luthier {

namespace {

using Clock = std::chrono::steady_clock;

// When a launch is reported to the user for the first time; each further time is twice as late.
constexpr std::chrono::seconds kFirst{10};
// Between checks: the last report of a process that is killed is at most this old.
constexpr std::chrono::milliseconds kPeriod{500};
// Adding up what was executed may take one part in this many of the time.
constexpr int kShare = 20;

} // namespace

LongLaunches::Running::Running(LongLaunches &launches, const char *plan, std::function<Progress()> progress)
    : launches_(launches) {
  std::lock_guard lock(launches.mutex_);
  entry_ = launches.running_.insert(launches.running_.end(), {plan, std::move(progress), Clock::now(), kFirst});
  if (!launches.watching_) {
    launches.watching_ = true;
    quiet_thread([&launches] { launches.watch(); }).detach(); // as the system, it lasts as long as the process
  }
}

LongLaunches::Running::~Running() {
  std::lock_guard lock(launches_.mutex_);
  launches_.running_.erase(entry_);
}

void LongLaunches::watch() {
  prctl(PR_SET_NAME, "luthier-watch");
  auto due = Clock::now();
  for (;;) {
    std::this_thread::sleep_for(kPeriod);
    try {
      look();
      if (const auto now = Clock::now(); service_.setup().counts_wanted && now >= due) {
        service_.ask(wire::Counts{false, counts_of(ExecutionCounters::get().take())});
        due = now + kShare * (Clock::now() - now);
      }
    } catch (const std::exception &) { // the service has ended: there is no reader
      return;
    }
  }
}

// Report all long launches in one message, which describes the one that has run longest.
void LongLaunches::look() {
  wire::Running running{};
  Progress progress;
  const char *plan = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (Entry &entry : running_) {
      const auto took = now - entry.begin;
      if (took < kPeriod)
        continue;
      if (!plan) {
        plan = entry.plan;
        progress = entry.progress();
        running.seconds = std::chrono::duration_cast<std::chrono::seconds>(took).count();
      }
      running.is_due |= took >= entry.due;
      while (entry.due <= took)
        entry.due *= 2;
    }
    running.others = plan ? running_.size() - 1 : 0;
  }
  if (!plan && !reported_)
    return;
  reported_ = plan != nullptr;
  Tally own;
  if (plan) {
    running.kernel = get(plan, layout::plan::kernel);
    running.progress = {
        progress.groups, progress.begun, progress.running, progress.resident, progress.is_full, progress.repeats, {}};
    for (const auto &[record, groups] : progress.places)
      running.progress.places.push_back({record, groups});
  }
  if (running.is_due) {
    Tally all = ExecutionCounters::get().take();
    const uint64_t code = get(plan, layout::plan::code);
    own[code] = std::move(all[code]);
  }
  running.executed = counts_of(own);
  service_.ask(running);
}

} // namespace luthier
