// HSA without HIP, and without a kernel: queues that are made and destroyed. The runtime tells a thread of its own of the
// end of each by a signal, and waits for that signal itself until the thread has answered.
// Its argument: how many queues.
#include "hsa_program.h"

int main(int, char **arguments) {
  CHECK(hsa_init());
  CHECK(hsa_iterate_agents(find_agent, nullptr));
  const int queues = std::atoi(arguments[1]);
  for (int number = 0; number < queues; ++number)
    CHECK(hsa_queue_destroy(make_queue()));
  CHECK(hsa_shut_down());
  std::printf("%d queues\n", queues);
}
