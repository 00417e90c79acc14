#include "crew.h"

#include <algorithm>
#include <csignal>
#include <sys/prctl.h>

namespace luthier {

std::thread quiet_thread(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread made(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

Crew::Crew(Service &service, unsigned threads) : service_(service), threads_(threads) {}

void Crew::spread(Worker &own, unsigned helpers, const Work &work) {
  Job job{&work, std::min(helpers, threads_)};
  if (job.wanted == 0) {
    work(own, 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    for (; !started_; started_ = true)
      for (unsigned number = 0; number < threads_; ++number)
        quiet_thread([this] { serve(); }).detach();
    jobs_.push_back(&job);
  }
  posted_.notify_all();
  work(own, 0);
  std::unique_lock lock(mutex_);
  jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
  finished_.wait(lock, [&] { return job.running == 0; });
}

void Crew::serve() {
  prctl(PR_SET_NAME, "luthier-crew");
  Worker worker(service_);
  std::unique_lock lock(mutex_);
  for (;;) {
    Job *job = nullptr;
    posted_.wait(lock, [&] {
      for (Job *each : jobs_)
        if (each->given < each->wanted)
          job = each;
      return job != nullptr;
    });
    const unsigned number = ++job->given;
    ++job->running;
    lock.unlock();
    (*job->work)(worker, number);
    lock.lock();
    if (--job->running == 0)
      finished_.notify_all();
  }
}

}  // namespace luthier
