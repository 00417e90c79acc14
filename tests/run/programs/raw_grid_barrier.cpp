// HSA without HIP: work-groups that wait for each other, in grids that are no multiple of the work-group. Its arguments:
// the code object, then launches, each of them XxYxZ,XxYxZ,N[,M]: the work-group, the grid in work-items, how often all
// wait, and where the last one stores behind the end of memory. It prints how many work-groups came, and how many sums
// over the two ends of the grid are wrong.
#include "hsa_program.h"

int main(int count, char **arguments) {
  const hsa_executable_t executable = load(arguments[1]);
  hsa_executable_symbol_t symbol;
  CHECK(hsa_executable_get_symbol_by_name(executable, "wait_for_all.kd", &gpu, &symbol));
  hsa_kernel_dispatch_packet_t packet{};
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
  hsa_queue_t *queue = make_queue();
  struct Arguments {
    uint32_t *values, *sums, *arrived, block[3], grid[3], rounds, beyond;
  } *kernarg = allocate<Arguments>(1);
  packet.setup = 3;
  packet.kernarg_address = kernarg;
  CHECK(hsa_signal_create(1, 0, nullptr, &packet.completion_signal));
  for (int launch = 2; launch < count; ++launch) {
    uint32_t *block = kernarg->block, *grid = kernarg->grid;
    if (std::sscanf(arguments[launch], "%ux%ux%u,%ux%ux%u,%u,%u", block, block + 1, block + 2, grid, grid + 1,
                    grid + 2, &kernarg->rounds, &kernarg->beyond) < 7)
      return 3;
    packet.workgroup_size_x = block[0], packet.workgroup_size_y = block[1], packet.workgroup_size_z = block[2];
    packet.grid_size_x = grid[0], packet.grid_size_y = grid[1], packet.grid_size_z = grid[2];
    const uint32_t items = grid[0] * grid[1] * grid[2];
    kernarg->values = allocate<uint32_t>(items);
    kernarg->sums = allocate<uint32_t>(items);
    kernarg->arrived = allocate<uint32_t>(1);
    hsa_signal_store_relaxed(packet.completion_signal, 1);
    submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
    wait_for(packet.completion_signal);
    uint32_t wrong = 0;
    for (uint32_t item = 0; item < items; ++item)
      wrong += kernarg->sums[item] != items - 1;
    std::printf("%u work-groups, %u wrong\n", *kernarg->arrived, wrong);
    for (uint32_t *memory : {kernarg->values, kernarg->sums, kernarg->arrived})
      CHECK(hsa_amd_memory_pool_free(memory));
  }
  CHECK(hsa_queue_destroy(queue));
  CHECK(hsa_shut_down());
}
