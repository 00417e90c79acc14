// A library of the functions of roctx, as ROCm's is: it says on standard error what it is called with.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static _Thread_local int level;
static uint64_t count = 100;

void roctxMarkA(const char *message) { fprintf(stderr, "mark of %zu bytes\n", message ? strlen(message) : 0); }

int roctxRangePushA(const char *message) {
  fprintf(stderr, "push %s\n", message);
  return level++;
}

int roctxRangePop() {
  fputs("pop\n", stderr);
  return level > 0 ? --level : -2;
}

uint64_t roctxRangeStartA(const char *message) {
  fprintf(stderr, "start %s\n", message);
  return count++;
}

void roctxRangeStop(uint64_t number) { fprintf(stderr, "stop %d\n", (int)number); }
