// What ROCr calls when it loads this library (HSA_TOOLS_LIB), and what programs call in place of ROCr's functions.
//
// Nothing here takes the program down: whatever goes wrong, the original kernel runs.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace luthier {

namespace {

struct Library {
  explicit Library(const HsaApiTable &table) : runtime(table) {}
  Runtime runtime;
  Client client;
  Faults faults{client};
  Kernels kernels{runtime, client, faults};
};

// Never destroyed: other threads may still launch kernels while the process ends.
Library *library = nullptr;

// What an intercepted queue remembers, used under the queue's own lock.
struct QueueState {
  explicit QueueState(unsigned gpu) : gpu(gpu) {}
  const unsigned gpu;
  uint64_t generation = 0;
  std::unordered_map<uint64_t, Kernel *> known;

  Kernel *find(uint64_t kernel_object) {
    const uint64_t now = library->kernels.generation();
    if (now != generation) {
      known.clear();
      generation = now;
    }
    Kernel *&kernel = known[kernel_object];
    if (!kernel)
      kernel = library->kernels.find(gpu, kernel_object);
    return kernel;
  }
};

constexpr uint64_t kPacket = 64;

bool is_dispatch(const char *packet) {
  uint16_t header;
  std::memcpy(&header, packet, sizeof header);
  return (header >> HSA_PACKET_HEADER_TYPE & 0xFF) == HSA_PACKET_TYPE_KERNEL_DISPATCH;
}

void on_packets(const void *packets, uint64_t count, uint64_t, void *data, hsa_amd_queue_intercept_packet_writer write) {
  const char *originals = static_cast<const char *>(packets);
  bool changed = false;
  try {
    auto &state = *static_cast<QueueState *>(data);
    // Few packets come at once.
    char few[8 * kPacket];
    std::string many;
    char *copies = few;
    if (count > sizeof few / kPacket) {
      many.resize(count * kPacket);
      copies = many.data();
    }
    for (uint64_t index = 0; index < count; ++index) {
      hsa_kernel_dispatch_packet_t packet;
      std::memcpy(&packet, originals + index * kPacket, kPacket);
      if (is_dispatch(originals + index * kPacket))
        changed |= state.find(packet.kernel_object)->launch(packet, library->client);
      std::memcpy(copies + index * kPacket, &packet, kPacket);
    }
    if (changed) {
      write(copies, count);
      return;
    }
  } catch (const std::exception &problem) {
    library->faults.tell(problem.what());
  }
  write(packets, count);
}

hsa_status_t create_queue(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                          void (*callback)(hsa_status_t, hsa_queue_t *, void *), void *data, uint32_t private_size,
                          uint32_t group_size, hsa_queue_t **queue) {
  const auto &runtime = library->runtime;
  const auto plain = [&] {
    return runtime.core.hsa_queue_create_fn(agent, size, type, callback, data, private_size, group_size, queue);
  };
  const int gpu = library->runtime.number_of(agent);
  if (gpu < 0)
    return plain();
  const hsa_status_t status = runtime.amd.hsa_amd_queue_intercept_create_fn(agent, size, type, callback, data,
                                                                            private_size, group_size, queue);
  if (status != HSA_STATUS_SUCCESS) {
    const hsa_status_t again = plain();
    if (again == HSA_STATUS_SUCCESS)  // else the program asked for what there is not
      library->faults.tell("a queue cannot be intercepted");
    return again;
  }
  auto *state = new QueueState(static_cast<unsigned>(gpu));
  if (runtime.amd.hsa_amd_queue_intercept_register_fn(*queue, on_packets, state) != HSA_STATUS_SUCCESS)
    library->faults.tell("the packets of a queue cannot be intercepted");
  return status;
}

hsa_status_t destroy_executable(hsa_executable_t executable) {
  library->kernels.forget(executable);
  return library->runtime.core.hsa_executable_destroy_fn(executable);
}

}  // namespace

}  // namespace luthier

extern "C" {

bool OnLoad(HsaApiTable *table, uint64_t, uint64_t, const char *const *) {
  using namespace luthier;
  if (library)
    return true;
  try {
    library = new Library(*table);
  } catch (const std::exception &problem) {
    std::fprintf(stderr, "luthier: nothing is instrumented: %s\n", problem.what());
    return false;
  }
  std::atexit([] { library->faults.flush(); });
  table->core_->hsa_queue_create_fn = create_queue;
  table->core_->hsa_executable_destroy_fn = destroy_executable;
  return true;
}

void OnUnload() {}
}
