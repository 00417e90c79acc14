// Launches that run for long: one is reported to the service again and again, to the user after 10 seconds and then
// less and less often. What was executed so far is reported, too, if it is wanted: a process that is killed cannot do
// it.
#pragma once

#include <chrono>
#include <functional>
#include <list>

#include "execution.h"
#include "service.h"

namespace luthier {

class LongLaunches {
  struct Entry {
    const char *plan; // layout::plan
    std::function<Progress()> progress;
    std::chrono::steady_clock::time_point begin;
    std::chrono::seconds due; // since then
  };

public:
  explicit LongLaunches(Service &service) : service_(service) {}

  // A launch, which runs as long as this lives.
  class Running {
  public:
    Running(LongLaunches &launches, const char *plan, std::function<Progress()> progress);
    ~Running();
    Running(const Running &) = delete;

  private:
    LongLaunches &launches_;
    std::list<Entry>::iterator entry_;
  };

private:
  void watch();
  void look();

  Service &service_;
  std::mutex mutex_;
  std::list<Entry> running_; // those that began first come first
  bool watching_ = false;
  bool reported_ = false; // there was a launch to report at the last check
};

} // namespace luthier
