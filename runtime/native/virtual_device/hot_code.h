// Code that is executed often: the service is told, and makes functions of its runs of instructions.
#pragma once

#include <atomic>
#include <mutex>

#include "service.h"

namespace luthier {

class HotCode {
public:
  explicit HotCode(Service &service) : service_(service) {}

  // A launch begins. With the first one a thread does that looks at what is executed from time to time.
  void launched();

private:
  void watch();
  bool look();

  Service &service_;
  std::once_flag begun_;
  std::atomic<bool> launched_ = false;
  uint64_t told_ = 0; // executions of frequent records
};

} // namespace luthier
