// HSA without HIP: a kernel in grids that are no multiple of its work-groups, so that those at their ends are smaller.
// Its arguments: the code object, then launches, each of them XxYxZ,XxYxZ,LDS: the work-group, the grid in work-items,
// and bytes of LDS beyond the kernel's own.
#include "hsa_program.h"

int main(int count, char **arguments) {
  const hsa_executable_t executable = load(arguments[1]);
  hsa_executable_symbol_t symbol;
  CHECK(hsa_executable_get_symbol_by_name(executable, "crowded.kd", &gpu, &symbol));
  hsa_kernel_dispatch_packet_t packet{};
  uint32_t fixed = 0, fixed_lds = 0;
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &fixed));
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &fixed_lds));
  packet.private_segment_size = fixed;
  hsa_queue_t *queue = make_queue();
  struct Arguments {
    uint32_t *out;
    uint32_t block[3], grid[3];
  } *kernarg = allocate<Arguments>(1);
  packet.setup = 3;
  packet.kernarg_address = kernarg;
  CHECK(hsa_signal_create(1, 0, nullptr, &packet.completion_signal));
  for (int launch = 2; launch < count; ++launch) {
    uint32_t *block = kernarg->block, *grid = kernarg->grid, lds = 0;
    if (std::sscanf(arguments[launch], "%ux%ux%u,%ux%ux%u,%u", block, block + 1, block + 2, grid, grid + 1, grid + 2,
                    &lds) != 7)
      return 3;
    packet.workgroup_size_x = block[0], packet.workgroup_size_y = block[1], packet.workgroup_size_z = block[2];
    packet.grid_size_x = grid[0], packet.grid_size_y = grid[1], packet.grid_size_z = grid[2];
    packet.group_segment_size = fixed_lds + lds;
    const uint32_t items = grid[0] * grid[1] * grid[2];
    kernarg->out = allocate<uint32_t>(items);
    hsa_signal_store_relaxed(packet.completion_signal, 1);
    submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
    while (hsa_signal_wait_scacquire(packet.completion_signal, HSA_SIGNAL_CONDITION_LT, 1, 1'000'000,
                                     HSA_WAIT_STATE_BLOCKED) > 0)
      if (problem)
        return std::printf("queue error %#x\n", problem.load());
    for (uint32_t item = 0; item < items; ++item)
      std::printf("%x%c", kernarg->out[item], item + 1 < items ? ' ' : '\n');
  }
  CHECK(hsa_queue_destroy(queue));
  CHECK(hsa_shut_down());
}
