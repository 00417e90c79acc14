// Times `stack_here`, below functions of known depth: prints frames, nanoseconds of CPU time a call, and backtrace()'s
// for as many.
#include "host_stack.h"

#include <cstdio>
#include <ctime>
#include <execinfo.h>

namespace {

// CPU time of this thread, in nanoseconds.
double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

template <typename Call> double nanoseconds(int times, Call call) {
  const double begin = now();
  for (int time = 0; time < times; ++time)
    call();
  return (now() - begin) / times;
}

volatile int factor = 1;

__attribute__((noinline)) int below(int depth) {
  if (depth) {
    const int under = below(depth - 1);
    return under * factor; // not a tail call, nor a loop
  }
  const size_t frames = luthier::stack_here()->frames.size();
  const double own = nanoseconds(100'000, [] { luthier::stack_here(); });
  void *all[512];
  const double peer = nanoseconds(2'000, [&] { backtrace(all, 512); });
  std::printf("%zu %f %f\n", frames, own, peer);
  std::fflush(stdout);
  return 0;
}

} // namespace

extern "C" int measure(int depth) { return below(depth); }

int main() {
  for (const int depth : {1, 10, 30, 100})
    measure(depth);
}
