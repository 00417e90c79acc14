// HSA without HIP: a kernel that was launched before is launched again when its code object is no longer loaded.
#include "hsa_program.h"

int main(int, char **arguments) {
  const hsa_executable_t executable = load(arguments[1]);
  hsa_executable_symbol_t symbol;
  CHECK(hsa_executable_get_symbol_by_name(executable, "add_one.kd", &gpu, &symbol));
  hsa_kernel_dispatch_packet_t packet{};
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
  hsa_queue_t *queue = make_queue();
  int *out = allocate<int>(1);
  int **kernarg = reinterpret_cast<int **>(allocate<char>(256));
  *kernarg = out;
  packet.setup = 1;
  packet.workgroup_size_x = packet.workgroup_size_y = packet.workgroup_size_z = 1;
  packet.grid_size_x = packet.grid_size_y = packet.grid_size_z = 1;
  packet.kernarg_address = kernarg;
  CHECK(hsa_signal_create(1, 0, nullptr, &packet.completion_signal));
  submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
  wait_for(packet.completion_signal);
  std::printf("ran %d times\n", *out);
  std::fflush(stdout);

  CHECK(hsa_executable_destroy(executable));
  hsa_signal_store_relaxed(packet.completion_signal, 1);
  submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
  for (int turn = 0; turn < 20'000 && !problem; ++turn)
    hsa_signal_wait_scacquire(packet.completion_signal, HSA_SIGNAL_CONDITION_LT, 1, 1'000'000, HSA_WAIT_STATE_BLOCKED);
  std::printf("queue error %#x\n", problem.load());
  CHECK(hsa_queue_destroy(queue));
  CHECK(hsa_shut_down());
}
