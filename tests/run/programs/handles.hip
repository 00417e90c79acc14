// Gives handles of memory to other processes, and the memory back at once, very often: handles [COUNT]
#include <cstdlib>

#include "check.h"

int main(int argc, char **argv) {
  for (int left = argc > 1 ? std::atoi(argv[1]) : 1; left > 0; --left) {
    void *memory;
    hipIpcMemHandle_t handle;
    HIP(hipMalloc(&memory, 4096));
    HIP(hipIpcGetMemHandle(&handle, memory));
    HIP(hipFree(memory));
  }
  std::puts("done");
}
