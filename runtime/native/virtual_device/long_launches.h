// Launches that run for long: the service is told of one after 10 seconds, and then ever less often.
#pragma once

#include <chrono>
#include <list>

#include "service.h"

namespace luthier {

class LongLaunches {
  struct Entry {
    const char *plan; // layout::plan
    std::chrono::steady_clock::time_point begin;
    std::chrono::seconds due; // since then
  };

public:
  explicit LongLaunches(Service &service) : service_(service) {}

  // A launch, which runs as long as this lives.
  class Running {
  public:
    Running(LongLaunches &launches, const char *plan);
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
};

} // namespace luthier
