// Waits and wait states that are missing in inline assembly, one a run; without a bug everything is as it should be.
#include "check.h"

#include <cstring>

#if defined(__gfx1200__) || defined(__gfx1201__)
#define WAIT "s_wait_loadcnt 0\n"
#else
#define WAIT "s_waitcnt vmcnt(0)\n"
#endif

// A load whose result is used before it need be there.
__global__ void loads(const int *data, int *out, int wait) {
  const int *from = data + threadIdx.x;
  int value, twice;
  if (wait)
    asm volatile("global_load_dword %0, %2, off\n"
                 WAIT
                 "v_lshlrev_b32 %1, 1, %0\n"
                 : "=&v"(value), "=&v"(twice)
                 : "v"(from));
  else // line: loads
    asm volatile("global_load_dword %0, %2, off\n"
                 "v_lshlrev_b32 %1, 1, %0\n"
                 WAIT
                 : "=&v"(value), "=&v"(twice)
                 : "v"(from));
  out[threadIdx.x] = value + twice - twice;
}

// A scalar register that a vector instruction writes, as the address of a load: GFX9 needs five wait states between.
__global__ void addresses(const int *data, int *out, int wait) {
  const long base = reinterpret_cast<long>(data);
  int value;
  if (wait)
    asm volatile("v_readfirstlane_b32 s20, %1\n"
                 "v_readfirstlane_b32 s21, %2\n"
                 "s_nop 4\n"
                 "global_load_dword %0, %3, s[20:21]\n"
                 WAIT
                 : "=&v"(value)
                 : "v"(int(base)), "v"(int(base >> 32)), "v"(4 * threadIdx.x)
                 : "s20", "s21");
  else // line: addresses
    asm volatile("v_readfirstlane_b32 s20, %1\n"
                 "v_readfirstlane_b32 s21, %2\n"
                 "s_nop 1\n"
                 "global_load_dword %0, %3, s[20:21]\n"
                 WAIT
                 : "=&v"(value)
                 : "v"(int(base)), "v"(int(base >> 32)), "v"(4 * threadIdx.x)
                 : "s20", "s21");
  out[threadIdx.x] = value;
}

int main(int argc, char **argv) {
  const char *kernel = argc > 1 ? argv[1] : "loads";
  const int wait = argc < 3 || std::strcmp(argv[2], "bug");
  std::vector<int> numbers(256);
  for (size_t index = 0; index < numbers.size(); ++index)
    numbers[index] = int(index) + 1;
  int *data = on_device(numbers), *out = on_device(std::vector<int>(256));
  for (int launch = 0; launch < 2; ++launch)
    if (!std::strcmp(kernel, "loads"))
      loads<<<4, 64>>>(data, out, wait);
    else
      addresses<<<4, 64>>>(data, out, wait);
  HIP(hipDeviceSynchronize());
  for (int value : on_host(out, 64))
    EXPECT(value > 0);
  std::printf("done\n");
}
