// What bench_sanitize.py measures: a program of the tests or examples, PROGRAM, run so often that what its kernels take
// can be told. Prints CPU seconds of the device's threads on standard error.
#define main program_main
#include PROGRAM
#undef main

#include "device_time.h"

#include <cstdio>
#include <cstdlib>

// It may end without a return, as main may (-fno-strict-return): what it returns says nothing.
static void run(int (*program)()) { program(); }

int main(int, char **arguments) {
  const int turns = std::atoi(arguments[1]);
  double began = 0;
  for (int turn = 0; turn <= turns; ++turn) { // the first one is not measured
    run(program_main);
    if (turn == 0)
      began = device_time();
  }
  std::fprintf(stderr, "\n%g\n", device_time() - began);
}
