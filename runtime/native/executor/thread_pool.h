// Threads that help with launches of many work-groups.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "worker.h"

namespace luthier {

// Start a thread that blocks all signals but SIGSEGV: those are the application's.
std::thread quiet_thread(std::function<void()> work);

class ThreadPool {
public:
  using Work = std::function<void(Worker &, unsigned number)>;
  ThreadPool(const Engine &engine, unsigned threads) : engine_(engine), threads_(threads) {}
  ~ThreadPool();

  unsigned size() const { return threads_; }
  // Calls `work` with `own` as number 0 on this thread, and on up to `helpers` others that are idle, from 1 on; returns
  // when all have returned.
  void spread(Worker &own, unsigned helpers, const Work &work);

private:
  struct Job {
    const Work *work;
    unsigned wanted, given = 0, running = 0;
  };
  void serve();

  const Engine &engine_;
  unsigned threads_;
  bool stopping_ = false;
  std::vector<std::thread> started_;
  std::mutex mutex_;
  std::condition_variable posted_, finished_;
  std::vector<Job *> jobs_;
};

} // namespace luthier
