// What lasts: very many launches with the memory they cost, and many processes at once, some of which die.
#include "check.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

__global__ void add(int *values, int amount) { values[threadIdx.x] += amount; }

static long resident_kib(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  std::string word;
  for (long number; status >> word;)
    if (word == "VmRSS:" && status >> number)
      return number;
  return -1;
}

// Ten times: launches so far, and how much memory this process and the one that serves it have, in KiB.
static int soak(int launches) {
  int *values = on_device(std::vector<int>(64));
  for (int part = 1; part <= 10; ++part) {
    for (int i = 0; i < launches / 10; ++i) {
      add<<<1, 64>>>(values, 1);
      if (i % 100 == 0) {
        int *other = on_device(std::vector<int>(1 << 16));
        add<<<1, 64>>>(other, 1);
        HIP(hipFree(other));
      }
    }
    HIP(hipDeviceSynchronize());
    std::printf("%d %ld %ld\n", part * (launches / 10), resident_kib(getpid()), resident_kib(getppid()));
    std::fflush(stdout);
  }
  for (int value : on_host(values, 64))
    EXPECT(value == launches / 10 * 10);
  return 0;
}

static int use(int number) {
  int *values = on_device(std::vector<int>(64, number));
  for (int i = 0; i < 20; ++i)
    add<<<1, 64>>>(values, 1);
  if (number % 4 == 3)
    std::raise(SIGKILL);
  EXPECT(on_host(values, 64)[63] == number + 20);
  return 0;
}

// Processes all at once, of which every fourth is killed while its kernels run.
static int storm(int processes) {
  std::vector<pid_t> children;
  for (int number = 0; number < processes; ++number) {
    const pid_t child = fork();
    if (child == 0)
      _exit(use(number));
    EXPECT(child > 0);
    children.push_back(child);
  }
  int killed = 0;
  for (size_t number = 0; number < children.size(); ++number) {
    int status = 0;
    EXPECT(waitpid(children[number], &status, 0) == children[number]);
    if (number % 4 == 3)
      killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    else
      EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  std::printf("%zu processes, %d killed\n", children.size(), killed);
  return use(0);
}

int main(int, char **arguments) {
  const int number = std::atoi(arguments[2]);
  return std::strcmp(arguments[1], "soak") == 0 ? soak(number) : storm(number);
}
