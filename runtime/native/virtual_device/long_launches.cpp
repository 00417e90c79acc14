#include "long_launches.h"

#include <sys/prctl.h>
#include <thread>

#include "bytes.h"
#include "thread_pool.h"

namespace luthier {

namespace {

using Clock = std::chrono::steady_clock;

// When a launch is told of for the first time; each further time is twice as late.
constexpr std::chrono::seconds kFirst{10};
constexpr std::chrono::seconds kPeriod{1}; // between looks

} // namespace

LongLaunches::Running::Running(LongLaunches &launches, const char *plan) : launches_(launches) {
  std::lock_guard lock(launches.mutex_);
  entry_ = launches.running_.insert(launches.running_.end(), {plan, Clock::now(), kFirst});
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
  for (;;) {
    std::this_thread::sleep_for(kPeriod);
    try {
      look();
    } catch (const std::exception &) { // the service is gone: nobody is to be told
      return;
    }
  }
}

// One message for all that are due, about the one that has run for longest.
void LongLaunches::look() {
  wire::Running told{};
  const char *plan = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (Entry &entry : running_) {
      const auto took = std::chrono::duration_cast<std::chrono::seconds>(now - entry.begin);
      if (took < entry.due)
        continue;
      while (entry.due <= took)
        entry.due *= 2;
      if (!plan) {
        plan = entry.plan;
        told.seconds = took.count();
      }
    }
    told.others = plan ? running_.size() - 1 : 0;
  }
  if (!plan)
    return;
  told.kernel = get(plan, layout::plan::kernel);
  Tally all = ExecutionCounters::get().take(), own;
  const uint64_t code = get(plan, layout::plan::code);
  own[code] = std::move(all[code]);
  service_.tell_running(told, own);
}

} // namespace luthier
