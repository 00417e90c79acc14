#include "thread_pool.h"

#include <algorithm>
#include <csignal>
#include <sys/prctl.h>

namespace luthier {

std::thread quiet_thread(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV); // or a fault would end the process, without the handler that lifts the protection of pages
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread made(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_all();
  for (std::thread &each : started_)
    each.join();
}

void ThreadPool::spread(Worker &own, unsigned helpers, const Work &work) {
  Job job{&work, std::min(helpers, threads_)};
  if (job.wanted == 0) {
    work(own, 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    while (started_.size() < threads_)
      started_.push_back(quiet_thread([this] { serve(); }));
    jobs_.push_back(&job);
  }
  posted_.notify_all();
  work(own, 0);
  std::unique_lock lock(mutex_);
  jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
  finished_.wait(lock, [&] { return job.running == 0; });
}

void ThreadPool::serve() {
  prctl(PR_SET_NAME, "luthier-pool");
  Worker worker(engine_);
  std::unique_lock lock(mutex_);
  for (;;) {
    Job *job = nullptr;
    posted_.wait(lock, [&] {
      if (stopping_)
        return true;
      for (Job *each : jobs_)
        if (each->given < each->wanted)
          job = each;
      return job != nullptr;
    });
    if (stopping_)
      return;
    const unsigned number = ++job->given;
    ++job->running;
    lock.unlock();
    (*job->work)(worker, number);
    lock.lock();
    if (--job->running == 0)
      finished_.notify_all();
  }
}

} // namespace luthier
