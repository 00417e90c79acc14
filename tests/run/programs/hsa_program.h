// What programs share that use HSA without HIP.
#pragma once

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

inline hsa_agent_t host, gpu;
inline hsa_amd_memory_pool_t pool;
inline std::atomic<int> problem{0};

inline hsa_status_t find_agent(hsa_agent_t agent, void *) {
  hsa_device_type_t type;
  CHECK(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
  (type == HSA_DEVICE_TYPE_GPU ? gpu : host) = agent;
  return HSA_STATUS_SUCCESS;
}

inline hsa_status_t find_pool(hsa_amd_memory_pool_t found, void *) {
  uint32_t flags = 0;
  CHECK(hsa_amd_memory_pool_get_info(found, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
  if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT)
    pool = found;
  return HSA_STATUS_SUCCESS;
}

template <typename T> T *allocate(size_t count) {
  T *place = nullptr;
  CHECK(hsa_amd_memory_pool_allocate(pool, count * sizeof(T), 0, reinterpret_cast<void **>(&place)));
  CHECK(hsa_amd_agents_allow_access(1, &gpu, nullptr, place));
  std::memset(place, 0, count * sizeof(T));
  return place;
}

// Puts a packet into the queue: the header last.
inline void submit(hsa_queue_t *queue, const void *packet, uint8_t type) {
  const uint64_t index = hsa_queue_add_write_index_relaxed(queue, 1);
  char *place = static_cast<char *>(queue->base_address) + index % queue->size * 64;
  std::memcpy(place + 4, static_cast<const char *>(packet) + 4, 60);
  const uint32_t setup = *(static_cast<const uint16_t *>(packet) + 1);
  __atomic_store_n(reinterpret_cast<uint32_t *>(place), setup << 16 | type | 1 << HSA_PACKET_HEADER_BARRIER,
                   __ATOMIC_RELEASE);
  hsa_signal_store_relaxed(queue->doorbell_signal, index);
}

inline void wait_for(hsa_signal_t signal) {
  hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED);
}

// The code object of a file, loaded.
inline hsa_executable_t load(const char *path) {
  CHECK(hsa_init());
  CHECK(hsa_iterate_agents(find_agent, nullptr));
  CHECK(hsa_amd_agent_iterate_memory_pools(host, find_pool, nullptr));
  hsa_code_object_reader_t reader;
  hsa_executable_t executable;
  CHECK(hsa_code_object_reader_create_from_file(open(path, O_RDONLY), &reader));
  CHECK(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, nullptr, &executable));
  CHECK(hsa_executable_load_agent_code_object(executable, gpu, reader, nullptr, nullptr));
  CHECK(hsa_executable_freeze(executable, nullptr));
  return executable;
}

inline hsa_queue_t *make_queue() {
  hsa_queue_t *queue = nullptr;
  CHECK(hsa_queue_create(gpu, 256, HSA_QUEUE_TYPE_MULTI,
                         [](hsa_status_t status, hsa_queue_t *, void *) { problem = status; }, nullptr, UINT32_MAX,
                         UINT32_MAX, &queue));
  return queue;
}
