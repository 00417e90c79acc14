// Launches from known places: functions, a recursion, a shared library, a callback of the C library, threads, and a
// forked process, inside and outside of ranges. Prints the stacks that backtrace() sees, if that is asked for.
#include <dlfcn.h>
#include <execinfo.h>
#include <hip/hip_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "check.h"

#define NOINLINE __attribute__((noinline))

__global__ void fill(int *out, int value) { out[threadIdx.x] = value; }
__global__ void drain(int *out) { out[threadIdx.x] += 1; }

static int *memory;
static void (*push)(const char *) = [](const char *) {};
static void (*pop)() = [] {};

// Print the addresses that the calls of this function return to, innermost first, as offsets in the program.
NOINLINE void print_stack(const char *name) {
  void *all[64];
  const int count = backtrace(all, 64);
  Dl_info own{};
  dladdr(reinterpret_cast<void *>(&print_stack), &own);
  std::printf("%s", name);
  for (int number = 2; number < count; ++number) {
    Dl_info info{};
    const char *call = static_cast<char *>(all[number]) - 1;
    if (dladdr(call, &info) && info.dli_fbase == own.dli_fbase)
      std::printf(" %lx", static_cast<unsigned long>(call - static_cast<char *>(info.dli_fbase)));
  }
  std::printf("\n");
}

NOINLINE void launch_fill(int value) {
  print_stack("fill");
  fill<<<1, 64>>>(memory, value);
}

NOINLINE void launch_drain(int items) {
  print_stack("drain");
  drain<<<1, items>>>(memory);
}

NOINLINE int recursive(int depth) {
  volatile char room[48];
  room[depth % 48] = static_cast<char>(depth);
  if (!depth) {
    launch_fill(1);
    return 0;
  }
  const int below = recursive(depth - 1);
  return below + room[depth % 48];
}

// A frame of a size that is known only at run time, and one with stricter alignment.
NOINLINE int uneven(int size) {
  auto *room = static_cast<volatile char *>(__builtin_alloca(size));
  alignas(64) volatile char aligned[64];
  room[size - 1] = aligned[0] = 1;
  launch_fill(2);
  return room[size - 1] + aligned[0];
}

static int compare(const void *, const void *) {
  launch_drain(32);
  return 0;
}

int main(int, char **arguments) {
  setvbuf(stdout, nullptr, _IONBF, 0);
  if (void *roctx = dlsym(RTLD_DEFAULT, "roctxRangePushA")) {
    push = reinterpret_cast<void (*)(const char *)>(roctx);
    pop = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "roctxRangePop"));
  }
  if (fork() == 0) {
    HIP(hipMalloc(&memory, 4096));
    launch_fill(7);
    HIP(hipDeviceSynchronize());
    return 0;
  }
  wait(nullptr);
  HIP(hipMalloc(&memory, 4096));
  push("outer");
  launch_fill(0);
  push("inner; step");
  recursive(3);
  uneven(100);
  pop();
  int pair[2] = {};
  qsort(pair, 2, sizeof *pair, compare);
  pop();
  std::thread([] {
    HIP(hipSetDevice(0));
    launch_drain(64);
  }).join();
  if (arguments[1]) {
    void *library = dlopen(arguments[1], RTLD_NOW);
    reinterpret_cast<void (*)(void (*)(int))>(dlsym(library, "through"))(launch_drain);
  }
  for (int number = 0; number < 10; ++number)
    launch_fill(number);
  HIP(hipDeviceSynchronize());
}
