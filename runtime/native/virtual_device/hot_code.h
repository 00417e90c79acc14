// Reports code that is executed often to the service, which compiles its runs of instructions to functions.
#pragma once

#include <atomic>
#include <mutex>

#include "service.h"

namespace luthier {

class HotCode {
public:
  explicit HotCode(Service &service) : service_(service) {}

  // A launch begins. The first one starts a thread that checks from time to time which code is executed.
  void launched();

private:
  void watch();
  bool look();

  Service &service_;
  std::once_flag begun_;
  std::atomic<bool> launched_ = false;
  uint64_t reported_ = 0; // executions of frequent records
};

} // namespace luthier
