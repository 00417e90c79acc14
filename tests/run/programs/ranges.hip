// Marks and ranges of roctx: nested ones on two threads, ones that end elsewhere and overlap, names of any bytes, a
// range that never ends, an end too many.
#include <cstdint>
#include <string>
#include <thread>

#include "check.h"

#ifdef BY_NAME // of a library, or nothing: then no library has them, unless one was loaded before the program
#include <dlfcn.h>
void *const library = *BY_NAME ? dlopen(BY_NAME, RTLD_LAZY | RTLD_LOCAL) : RTLD_DEFAULT;
#define FUNCTION(result, name, ...)                                                                                    \
  result (*const name)(__VA_ARGS__) = reinterpret_cast<result (*)(__VA_ARGS__)>(dlsym(library, #name))
FUNCTION(void, roctxMarkA, const char *);
FUNCTION(int, roctxRangePushA, const char *);
FUNCTION(int, roctxRangePop);
FUNCTION(uint64_t, roctxRangeStartA, const char *);
FUNCTION(void, roctxRangeStop, uint64_t);
#else
extern "C" {
void roctxMarkA(const char *message);
int roctxRangePushA(const char *message);
int roctxRangePop();
uint64_t roctxRangeStartA(const char *message);
void roctxRangeStop(uint64_t number);
}
#endif

__global__ void add(int *to) { to[threadIdx.x] += 1; }

int main() {
  int *memory;
  HIP(hipMalloc(reinterpret_cast<void **>(&memory), 64 * sizeof(int)));
  HIP(hipMemset(memory, 0, 64 * sizeof(int)));
  const int outer = roctxRangePushA("outer");
  const uint64_t first = roctxRangeStartA("first"), second = roctxRangeStartA("second");
  std::thread other([&] {
    roctxRangePushA("elsewhere");
    roctxRangeStop(first);
    roctxRangePop();
  });
  other.join();
  for (int step = 0; step < 3; ++step) {
    const int inner = roctxRangePushA("step");
    if (inner != outer + 1)
      return std::printf("level %d in %d\n", inner, outer), 1;
    add<<<1, 64>>>(memory);
    HIP(hipDeviceSynchronize());
    roctxRangePop();
  }
  roctxRangeStop(second);
  roctxMarkA("half\xff way");
  roctxMarkA(nullptr);
  roctxMarkA(std::string(5000, 'x').c_str());
  roctxRangePop();
  if (roctxRangePop() >= 0)
    return std::puts("an end of nothing"), 1;
  roctxRangePushA("never ends");
  std::puts("ranges");
}
