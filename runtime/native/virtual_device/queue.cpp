#include "queue.h"

#include <ctime>
#include <sys/prctl.h>

namespace luthier {

namespace {

using Clock = std::chrono::steady_clock;

void nap(long nanoseconds) {
  const timespec time{0, nanoseconds};
  nanosleep(&time, nullptr);
}

} // namespace

uint64_t device_clock() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (now.tv_sec * 1'000'000'000ull + now.tv_nsec) / 10;
}

void Queue::start(uint64_t id) {
  id_ = id;
  member_ =
      room_.order.join([this] { return submitted(); }, [this] { return __atomic_load_n(read_, __ATOMIC_ACQUIRE); });
  thread_ = quiet_thread([this] { run(); });
}

void Queue::stop() {
  stopping_ = true;
  abort();
  if (thread_.joinable())
    thread_.join();
  room_.order.leave(member_);
}

// Packets are announced by stores to memory, so the thread polls: continuously just after there was work, then less and
// less often.
void Queue::run() {
  prctl(PR_SET_NAME, "luthier-queue");
  prctl(PR_SET_TIMERSLACK, 1);
  Clock::time_point last = Clock::now();
  while (!stopping()) {
    if (active_ && process()) {
      last = Clock::now();
      continue;
    }
    const auto idle = Clock::now() - last;
    if (idle < std::chrono::microseconds(30))
      for (int turn = 0; turn < 20; ++turn)
        __builtin_ia32_pause();
    else if (idle < std::chrono::milliseconds(2))
      nap(10'000);
    else if (idle < std::chrono::milliseconds(50))
      nap(50'000);
    else if (idle < std::chrono::seconds(1))
      nap(200'000);
    else
      nap(1'000'000);
  }
}

bool Queue::wait_until(const std::function<bool()> &done) {
  for (int turn = 0; !done(); ++turn) {
    if (stopping())
      return false;
    if (turn < 200)
      __builtin_ia32_pause();
    else
      nap(turn < 2000 ? 5'000 : 50'000);
  }
  return true;
}

} // namespace luthier
