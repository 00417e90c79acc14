#include "rings.h"

#include <csignal>
#include <pthread.h>
#include <thread>

namespace luthier {

namespace {

// luthier::detail::Ring::mode and kClosed of luthier/channel.h.
constexpr uint64_t kMode = 72;
constexpr uint32_t kClosed = 2;

}  // namespace

void Rings::add(char *ring) {
  std::lock_guard lock(mutex_);
  if (ended_)
    close(ring);
  rings_.push_back(ring);
  if (rings_.size() > 1)
    return;
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this] { watch(); }).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Failure("no thread can be made that watches over the tools' channels");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Rings::watch() {
  client_.wait_for_end();
  std::lock_guard lock(mutex_);
  ended_ = true;
  for (char *ring : rings_)
    close(ring);
}

void Rings::close(char *ring) {
  __atomic_store_n(reinterpret_cast<uint32_t *>(ring + kMode), kClosed, __ATOMIC_RELEASE);
}

}  // namespace luthier
