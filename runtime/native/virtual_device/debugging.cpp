#include "debugging.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <unistd.h>

namespace luthier {

namespace {

// Write a mark to the debugger's pipe. A full one has marks that it has not read yet. If the debugger has ended, the
// program gets no SIGPIPE, which would end it.
void notify(int pipe) {
  sigset_t broken, before, pending;
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken, &before);
  sigpending(&pending);
  const char mark = '.';
  if (write(pipe, &mark, 1) < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE)) {
    const timespec now{};
    sigtimedwait(&broken, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

} // namespace

Debugging::~Debugging() { detach(); }

bool Debugging::attach(int notifier, uint64_t reported) {
  std::lock_guard lock(mutex_);
  if (attached_)
    return false;
  notifier_ = notifier;
  reported_ = reported;
  attached_ = true;
  return true;
}

void Debugging::detach() {
  std::lock_guard lock(mutex_);
  if (notifier_ >= 0)
    close(notifier_);
  notifier_ = -1;
  reported_ = 0;
  attached_ = halts_ = false;
}

void Debugging::report(uint64_t exceptions) {
  std::lock_guard lock(mutex_);
  reported_ = exceptions;
}

void Debugging::raise(uint64_t queue, uint64_t exceptions) {
  std::lock_guard lock(mutex_);
  pending_[queue] |= exceptions;
  if (notifier_ >= 0 && exceptions & reported_)
    notify(notifier_);
}

uint64_t Debugging::take(uint64_t queue, uint64_t cleared) {
  std::lock_guard lock(mutex_);
  const auto entry = pending_.find(queue);
  if (entry == pending_.end())
    return 0;
  const uint64_t before = entry->second;
  entry->second &= ~cleared;
  return before;
}

void Debugging::forget(uint64_t queue) {
  std::lock_guard lock(mutex_);
  pending_.erase(queue);
}

std::optional<Debugging::Pending> Debugging::next(uint64_t cleared) {
  std::lock_guard lock(mutex_);
  for (auto &[queue, exceptions] : pending_)
    if (exceptions & reported_) {
      const Pending pending{queue, exceptions};
      exceptions &= ~cleared;
      return pending;
    }
  return std::nullopt;
}

} // namespace luthier
