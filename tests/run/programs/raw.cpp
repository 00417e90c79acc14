// HSA without HIP: a grid that is no multiple of its work-group, barriers on signals, an error of a queue.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    if (const hsa_status_t status = (call); status != HSA_STATUS_SUCCESS) {                                           \
      std::printf("line %d: status %#x\n", __LINE__, status);                                                         \
      std::exit(2);                                                                                                    \
    }                                                                                                                  \
  } while (0)

static hsa_agent_t host, gpu;
static hsa_amd_memory_pool_t pool;
static std::atomic<int> problem{0};

static hsa_status_t find_agent(hsa_agent_t agent, void *) {
  hsa_device_type_t type;
  CHECK(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
  (type == HSA_DEVICE_TYPE_GPU ? gpu : host) = agent;
  return HSA_STATUS_SUCCESS;
}

static hsa_status_t find_pool(hsa_amd_memory_pool_t found, void *) {
  uint32_t flags = 0;
  CHECK(hsa_amd_memory_pool_get_info(found, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
  if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT)
    pool = found;
  return HSA_STATUS_SUCCESS;
}

template <typename T> static T *allocate(size_t count) {
  T *place = nullptr;
  CHECK(hsa_amd_memory_pool_allocate(pool, count * sizeof(T), 0, reinterpret_cast<void **>(&place)));
  CHECK(hsa_amd_agents_allow_access(1, &gpu, nullptr, place));
  std::memset(place, 0, count * sizeof(T));
  return place;
}

// Puts a packet into the queue: the header last.
static void submit(hsa_queue_t *queue, const void *packet, uint8_t type) {
  const uint64_t index = hsa_queue_add_write_index_relaxed(queue, 1);
  char *place = static_cast<char *>(queue->base_address) + index % queue->size * 64;
  std::memcpy(place + 4, static_cast<const char *>(packet) + 4, 60);
  const uint32_t setup = *(static_cast<const uint16_t *>(packet) + 1);
  __atomic_store_n(reinterpret_cast<uint32_t *>(place), setup << 16 | type | 1 << HSA_PACKET_HEADER_BARRIER,
                   __ATOMIC_RELEASE);
  hsa_signal_store_relaxed(queue->doorbell_signal, index);
}

static void wait_for(hsa_signal_t signal) {
  hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED);
}

int main(int, char **arguments) {
  CHECK(hsa_init());
  CHECK(hsa_iterate_agents(find_agent, nullptr));
  CHECK(hsa_amd_agent_iterate_memory_pools(host, find_pool, nullptr));
  hsa_code_object_reader_t reader;
  hsa_executable_t executable;
  CHECK(hsa_code_object_reader_create_from_file(open(arguments[1], O_RDONLY), &reader));
  CHECK(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, nullptr, &executable));
  CHECK(hsa_executable_load_agent_code_object(executable, gpu, reader, nullptr, nullptr));
  CHECK(hsa_executable_freeze(executable, nullptr));
  hsa_executable_symbol_t symbol;
  CHECK(hsa_executable_get_symbol_by_name(executable, "mark.kd", &gpu, &symbol));
  hsa_kernel_dispatch_packet_t packet{};
  uint32_t kernarg_size = 0;
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &kernarg_size));
  hsa_queue_t *queue = nullptr;
  CHECK(hsa_queue_create(gpu, 256, HSA_QUEUE_TYPE_MULTI,
                         [](hsa_status_t status, hsa_queue_t *, void *) { problem = status; }, nullptr, UINT32_MAX,
                         UINT32_MAX, &queue));

  const uint32_t nx = 100, ny = 7, nz = 3;
  int *out = allocate<int>(nx * ny * nz), *count = allocate<int>(1);
  struct Arguments {
    int *out, *count;
    int nx, ny, gx, gy, gz;
  };
  auto *kernarg = reinterpret_cast<Arguments *>(allocate<char>(kernarg_size));
  *kernarg = {out, count, nx, ny, 64, 4, 2};
  packet.setup = 3;
  packet.workgroup_size_x = 64, packet.workgroup_size_y = 4, packet.workgroup_size_z = 2;
  packet.grid_size_x = nx, packet.grid_size_y = ny, packet.grid_size_z = nz;
  packet.kernarg_address = kernarg;
  CHECK(hsa_signal_create(1, 0, nullptr, &packet.completion_signal));
  submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
  wait_for(packet.completion_signal);
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
  submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
  for (int turn = 0; turn < 20'000 && !problem; ++turn)
    hsa_signal_wait_scacquire(packet.completion_signal, HSA_SIGNAL_CONDITION_LT, 1, 1'000'000, HSA_WAIT_STATE_BLOCKED);
  std::printf("queue error %#x\n", problem.load());
  CHECK(hsa_queue_destroy(queue));
  CHECK(hsa_shut_down());
}
