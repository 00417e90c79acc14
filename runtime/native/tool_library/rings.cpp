#include "rings.h"

#include <csignal>
#include <pthread.h>
#include <thread>

namespace luthier {

void Rings::add(wire::Ring *ring) {
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
    throw Failure("cannot make the thread that watches the channels of tools");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Rings::watch() {
  client_.wait_for_end();
  std::lock_guard lock(mutex_);
  ended_ = true;
  for (wire::Ring *ring : rings_)
    close(ring);
}

void Rings::close(wire::Ring *ring) {
  __atomic_store_n(&ring->mode, static_cast<uint32_t>(wire::Mode::kClosed), __ATOMIC_RELEASE);
}

} // namespace luthier
