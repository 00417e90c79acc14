// Bugs in the use of memory that HSA gives, one a run. Arguments: a code object, `pool`, `region` or `arguments` (the
// pool for arguments of kernels), and what to do wrong.
#include "hsa_program.h"

static hsa_amd_memory_pool_t pool_of_gpu;
static hsa_region_t region_of_gpu;
static const char *container;

static int *take(size_t bytes) {
  void *place = nullptr;
  const hsa_amd_memory_pool_t from = std::strcmp(container, "pool") ? pool : pool_of_gpu;
  CHECK(std::strcmp(container, "region") ? hsa_amd_memory_pool_allocate(from, bytes, 0, &place) // line: pool
                                         : hsa_memory_allocate(region_of_gpu, bytes, &place));  // line: region
  return static_cast<int *>(place);
}

static hsa_status_t give_back(int *place) {
  return std::strcmp(container, "region") ? hsa_amd_memory_pool_free(place) : hsa_memory_free(place); // line: free
}

int main(int, char **arguments) {
  const hsa_executable_t executable = load(arguments[1]);
  container = arguments[2];
  const char *bug = arguments[3];
  const auto is = [&](const char *what) { return !std::strcmp(bug, what); };
  CHECK(hsa_amd_agent_iterate_memory_pools(
      gpu,
      [](hsa_amd_memory_pool_t its, void *) {
        bool may = false;
        CHECK(hsa_amd_memory_pool_get_info(its, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &may));
        if (may && !pool_of_gpu.handle)
          pool_of_gpu = its;
        return HSA_STATUS_SUCCESS;
      },
      nullptr));
  CHECK(hsa_agent_iterate_regions(
      gpu,
      [](hsa_region_t its, void *) {
        bool may = false;
        CHECK(hsa_region_get_info(its, HSA_REGION_INFO_RUNTIME_ALLOC_ALLOWED, &may));
        if (may && !region_of_gpu.handle)
          region_of_gpu = its;
        return HSA_STATUS_SUCCESS;
      },
      nullptr));
  hsa_executable_symbol_t symbol;
  hsa_kernel_dispatch_packet_t packet{};
  CHECK(hsa_executable_get_symbol_by_name(executable, "mark.kd", &gpu, &symbol));
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
  uint32_t size = 0;
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &size));
  hsa_queue_t *queue = make_queue();

  const long count = 1024, lanes = 32; // whole pages: what is behind them would be others'
  int *before = take(4 * count), *data = take(4 * count), *after = take(4 * count);
  struct Arguments {
    int *data;
    long at;
  };
  auto *kernarg = reinterpret_cast<Arguments *>(allocate<char>(size));
  *kernarg = {data, is("below") ? -1 : count - lanes + is("above")};
  CHECK(hsa_amd_agents_allow_access(1, &gpu, nullptr, data));
  if (is("freed"))
    CHECK(give_back(data));
  packet.setup = 1;
  packet.workgroup_size_x = packet.grid_size_x = lanes;
  packet.workgroup_size_y = packet.workgroup_size_z = packet.grid_size_y = packet.grid_size_z = 1;
  packet.kernarg_address = kernarg;
  CHECK(hsa_signal_create(1, 0, nullptr, &packet.completion_signal));
  submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
  wait_for(packet.completion_signal);
  if (!is("freed") && !is("leak"))
    CHECK(give_back(data));
  if (is("twice") && give_back(data) != HSA_STATUS_ERROR_INVALID_ALLOCATION)
    return 3;
  CHECK(give_back(before));
  CHECK(give_back(after));
  CHECK(hsa_amd_memory_pool_free(kernarg));
  CHECK(hsa_signal_destroy(packet.completion_signal));
  CHECK(hsa_queue_destroy(queue));
  CHECK(hsa_shut_down());
  std::puts("done");
}
