// HSA without HIP: a grid that is no multiple of its work-group, barriers on signals, an error of a queue; with one more
// argument the kernel stores to a null pointer.
#include "hsa_program.h"

int main(int arguments_count, char **arguments) {
  const hsa_executable_t executable = load(arguments[1]);
  hsa_executable_symbol_t symbol;
  CHECK(hsa_executable_get_symbol_by_name(executable, "mark.kd", &gpu, &symbol));
  hsa_kernel_dispatch_packet_t packet{};
  uint32_t kernarg_size = 0;
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &kernarg_size));
  hsa_queue_t *queue = make_queue();

  const uint32_t nx = 100, ny = 7, nz = 3;
  int *out = allocate<int>(nx * ny * nz), *count = allocate<int>(1);
  struct Arguments {
    int *out, *count;
    int nx, ny, gx, gy, gz;
  };
  auto *kernarg = reinterpret_cast<Arguments *>(allocate<char>(kernarg_size));
  *kernarg = {arguments_count > 2 ? nullptr : out, count, nx, ny, 64, 4, 2};
  packet.setup = 3;
  packet.workgroup_size_x = 64, packet.workgroup_size_y = 4, packet.workgroup_size_z = 2;
  packet.grid_size_x = nx, packet.grid_size_y = ny, packet.grid_size_z = nz;
  packet.kernarg_address = kernarg;
  CHECK(hsa_signal_create(1, 0, nullptr, &packet.completion_signal));
  const auto run = [&] {
    submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
    for (int turn = 0; turn < 20'000 && !problem; ++turn)
      if (!hsa_signal_wait_scacquire(packet.completion_signal, HSA_SIGNAL_CONDITION_LT, 1, 1'000'000,
                                     HSA_WAIT_STATE_BLOCKED))
        return;
    std::printf("queue error %#x\n", problem.load());
  };
  run();
  if (problem)
    return 0;
  for (uint32_t i = 0; i < nx * ny * nz; ++i)
    if (out[i] != 1) {
      std::printf("item %u ran %d times\n", i, out[i]);
      return 3;
    }

  // One of two signals lets the barrier go on; then a value that is set later.
  hsa_barrier_or_packet_t either{};
  CHECK(hsa_signal_create(1, 0, nullptr, &either.dep_signal[0]));
  CHECK(hsa_signal_create(1, 0, nullptr, &either.dep_signal[3]));
  CHECK(hsa_signal_create(1, 0, nullptr, &either.completion_signal));
  submit(queue, &either, HSA_PACKET_TYPE_BARRIER_OR);
  if (hsa_signal_wait_scacquire(either.completion_signal, HSA_SIGNAL_CONDITION_LT, 1, 20'000'000,
                                HSA_WAIT_STATE_BLOCKED) != 1)
    return 4;
  hsa_signal_store_screlease(either.dep_signal[3], 0);
  wait_for(either.completion_signal);
  hsa_barrier_and_packet_t all{};
  CHECK(hsa_signal_create(1, 0, nullptr, &all.dep_signal[1]));
  CHECK(hsa_signal_create(1, 0, nullptr, &all.completion_signal));
  all.dep_signal[0] = either.dep_signal[3];
  submit(queue, &all, HSA_PACKET_TYPE_BARRIER_AND);
  if (hsa_signal_wait_scacquire(all.completion_signal, HSA_SIGNAL_CONDITION_LT, 1, 20'000'000,
                                HSA_WAIT_STATE_BLOCKED) != 1)
    return 5;
  hsa_signal_store_screlease(all.dep_signal[1], 0);
  wait_for(all.completion_signal);
  std::printf("%d items\n", *count);

  packet.group_segment_size = 1 << 20;
  hsa_signal_store_relaxed(packet.completion_signal, 1);
  run();
  CHECK(hsa_queue_destroy(queue));
  CHECK(hsa_shut_down());
}
