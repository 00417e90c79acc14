// Allocates many times; prints the CPU time of an allocation in microseconds, for each tenth of them.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

// CPU time of this thread, in microseconds.
static double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * time.tv_sec + 1e-3 * time.tv_nsec;
}

int main(int, char **arguments) {
  const int count = std::atoi(arguments[1]) / 10;
  void *memory = nullptr;
  if (hipMalloc(&memory, 4) != hipSuccess)
    return 1;
  for (int tenth = 0; tenth < 10; ++tenth) {
    const double begin = now();
    for (int number = 0; number < count; ++number)
      if (hipMalloc(&memory, 64) != hipSuccess)
        return 1;
    std::printf("%f\n", (now() - begin) / count);
  }
}
