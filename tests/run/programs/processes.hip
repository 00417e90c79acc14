// A child that is forked before HIP is used, one that executes this program anew, memory shared between processes.
#include "check.h"

#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

__global__ void add(int *values, int amount) { values[threadIdx.x] += amount; }

static int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static int use(int amount) {
  int *values = on_device(std::vector<int>(64, 1));
  add<<<1, 64>>>(values, amount);
  for (int value : on_host(values, 64))
    EXPECT(value == 1 + amount);
  return 0;
}

static int use_shared(const char *text) {
  hipIpcMemHandle_t handle;
  for (size_t i = 0; i < sizeof handle; ++i)
    std::sscanf(text + 2 * i, "%2hhx", reinterpret_cast<unsigned char *>(&handle) + i);
  int *values = nullptr;
  HIP(hipIpcOpenMemHandle(reinterpret_cast<void **>(&values), handle, hipIpcMemLazyEnablePeerAccess));
  add<<<1, 64>>>(values, 100);
  HIP(hipDeviceSynchronize());
  HIP(hipIpcCloseMemHandle(values));
  return 0;
}

int main(int count, char **arguments) {
  if (count == 2)
    return use(std::atoi(arguments[1]));
  if (count == 3)
    return use_shared(arguments[2]);
  pid_t child = fork();
  if (child == 0)
    _exit(use(3));
  EXPECT(wait_for(child) == 0);
  use(4);
  int *values = on_device(std::vector<int>(64, 5));
  hipIpcMemHandle_t handle;
  HIP(hipIpcGetMemHandle(&handle, values));
  std::string text;
  for (size_t i = 0; i < sizeof handle; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", reinterpret_cast<unsigned char *>(&handle)[i]);
    text += digits;
  }
  child = fork();
  if (child == 0) {
    execl("/proc/self/exe", arguments[0], "5", nullptr);
    _exit(101);
  }
  EXPECT(wait_for(child) == 0);
  child = fork();
  if (child == 0) {
    execl("/proc/self/exe", arguments[0], "shared", text.c_str(), nullptr);
    _exit(101);
  }
  EXPECT(wait_for(child) == 0);
  for (int value : on_host(values, 64))
    EXPECT(value == 105);
  std::puts("processes");
}
