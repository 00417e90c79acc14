// Functions that ROCr calls when it loads this library (HSA_TOOLS_LIB), and that programs call in place of ROCr's.
//
// Nothing here ends the program: if something goes wrong, the original kernel runs.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <optional>
#include <utility>

#include "events.h"
#include "launch_stacks.h"
#include "timing.h"
#include "turns.h"

namespace luthier {

namespace {

// The intercepted cooperative queues, by agent. ROCr keeps one such queue an agent and returns it to all callers. To
// destroy the interceptor would delete that queue, which ROCr would still use. So all callers get the same interceptor,
// and it is never destroyed.
class CooperativeQueues {
public:
  // Null if there is none yet.
  hsa_queue_t *of(hsa_agent_t agent) {
    std::lock_guard lock(mutex_);
    const auto entry = queues_.find(agent.handle);
    return entry == queues_.end() ? nullptr : entry->second;
  }
  void keep(hsa_agent_t agent, hsa_queue_t *queue) {
    std::lock_guard lock(mutex_);
    queues_[agent.handle] = queue;
  }
  bool empty() {
    std::lock_guard lock(mutex_);
    return queues_.empty();
  }
  bool has(const hsa_queue_t *queue) {
    std::lock_guard lock(mutex_);
    return std::any_of(queues_.begin(), queues_.end(), [&](auto &entry) { return entry.second == queue; });
  }

private:
  std::mutex mutex_;
  std::map<uint64_t, hsa_queue_t *> queues_;
};

struct Library {
  explicit Library(const HsaApiTable &table) : runtime(table) {
    if (client.ledger().has_records())
      timing = std::make_unique<Timing>(runtime);
  }
  Runtime runtime;
  Client client;
  Faults faults{client};
  Kernels kernels{runtime, client, faults};
  std::unique_ptr<Timing> timing; // null if launches are not recorded
  LaunchStacks stacks{client, faults};
  std::atomic<unsigned> queues{0};
  CooperativeQueues cooperative;
  std::optional<EventLog> events; // if tools want events

  Turn &turn(unsigned gpu) {
    std::lock_guard lock(mutex_);
    auto &turn = turns_[gpu];
    if (!turn)
      turn = std::make_unique<Turn>(runtime, client, faults, gpu);
    return *turn;
  }
  // Report the calls of HIP functions, once the process has loaded HIP.
  void tell_of_hip() {
    std::lock_guard lock(mutex_);
    try {
      if (events && !client.wishes().hip.empty() && !has_hip_)
        has_hip_ = luthier::tell_of_hip(*events, faults, client.wishes().hip);
    } catch (const std::exception &problem) {
      has_hip_ = true;
      faults.tell(problem.what());
    }
  }
  void finish() {
    if (client.is_own()) { // first: in a forked child, a thread that does not exist there may hold the lock
      std::lock_guard lock(mutex_);
      for (auto &[gpu, turn] : turns_)
        turn->finish();
      finish_timing();
    }
    faults.flush();
  }
  void finish_timing() {
    if (timing && client.is_own())
      timing->finish();
  }

private:
  std::mutex mutex_;
  std::map<unsigned, std::unique_ptr<Turn>> turns_;
  bool has_hip_ = false;
};

// The entry in ROCr's table when the library was loaded. OnLoad may be called again for the same table.
decltype(CoreApiTable::hsa_executable_destroy_fn) in_place = nullptr;

// Never destroyed: other threads may still launch kernels while the process ends.
Library *library = nullptr;

// State of an intercepted queue, used under the queue's own lock.
struct QueueState {
  QueueState(unsigned gpu, unsigned number, const hsa_queue_t *queue)
      : gpu(gpu), number(static_cast<uint16_t>(number)), queue(queue) {}
  const unsigned gpu;
  const uint16_t number;
  const hsa_queue_t *const queue;
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

hsa_signal_t completion_signal(const char *packet) { // at one place in packets of every kind
  hsa_signal_t signal;
  std::memcpy(&signal, packet + offsetof(hsa_kernel_dispatch_packet_t, completion_signal), sizeof signal);
  return signal;
}

// Records a launch that is about to be written.
void record(QueueState &state, const Kernel &kernel, uint64_t number, bool instrumented,
            hsa_kernel_dispatch_packet_t &packet) {
  Client &client = library->client;
  const uint32_t stack = client.wishes().stacks ? library->stacks.here() : 0;
  LedgerRecord *record = client.ledger().record(kernel.row, number, instrumented, state.number, stack, packet);
  if (record && library->timing)
    library->timing->watch(state.gpu, packet, *record);
}

using Writer = hsa_amd_queue_intercept_packet_writer;

struct Packet {
  char bytes[kPacket];
};

// The description of a launch that is captured, without its memory.
wire::LaunchMemory described(const QueueState &state, const Kernel &kernel, uint64_t number, uint64_t id,
                             const hsa_kernel_dispatch_packet_t &packet) {
  return {.gpu = state.gpu,
          .row = kernel.row,
          .number = number,
          .is_after = false,
          .kernarg = reinterpret_cast<uint64_t>(packet.kernarg_address),
          .queue = reinterpret_cast<uint64_t>(state.queue),
          .load_address = kernel.delta,
          .id = id,
          .cooperative = state.queue->type == HSA_QUEUE_TYPE_COOPERATIVE,
          .device = {},
          .ranges = {},
          .contents = {}};
}

// Make a launch wait for its turn, and add it to what is to be written, followed by the packet that reports its end.
// `id`: the packet's number in its queue.
void take_turn(QueueState &state, Kernel &kernel, uint64_t id, const void *original, std::vector<Packet> &out) {
  const auto add = [&](const void *packet) { std::memcpy(out.emplace_back().bytes, packet, kPacket); };
  hsa_kernel_dispatch_packet_t packet;
  std::memcpy(&packet, original, kPacket);
  Client &client = library->client;
  Turn *turn = nullptr;
  try {
    const auto [number, chosen] = kernel.launched(packet, client, library->faults);
    Turn &own = library->turn(state.gpu);
    own.begin(kernel.row, number);
    turn = &own;
    const std::string arguments = kernel.read_arguments(packet);
    const wire::LaunchAnswer answer = client.ask(wire::LaunchRequest{
        .gpu = state.gpu,
        .row = kernel.row,
        .number = number,
        .chosen = chosen,
        .grid_x = packet.grid_size_x,
        .grid_y = packet.grid_size_y,
        .grid_z = packet.grid_size_z,
        .block_x = packet.workgroup_size_x,
        .block_y = packet.workgroup_size_y,
        .block_z = packet.workgroup_size_z,
        .group_segment = packet.group_segment_size,
        .private_segment = packet.private_segment_size,
        .arguments = arguments,
    });
    const bool instrumented = answer.instrumented && chosen;
    std::vector<hsa_barrier_and_packet_t> after;
    if (answer.capture) {
      const wire::LaunchMemory launch = described(state, kernel, number, id, packet);
      const LaunchRoots roots{launch.kernarg, answer.arguments, packet.kernel_object, launch.queue};
      for (const hsa_barrier_and_packet_t &before : turn->capture(launch, roots, answer.capture))
        add(&before);
      packet.header |= 1 << HSA_PACKET_HEADER_BARRIER; // it waits for these
      const Turn::Barriers completing = turn->complete(std::exchange(packet.completion_signal, {}));
      after.assign(completing.begin(), completing.end());
    }
    after.push_back(turn->watch());
    if (instrumented)
      kernel.substitute(packet);
    record(state, kernel, number, instrumented, packet);
    add(&packet);
    for (const hsa_barrier_and_packet_t &barrier : after)
      add(&barrier);
  } catch (const std::exception &problem) {
    library->faults.tell(problem.what());
    add(original);
    if (turn)
      turn->give_up();
  }
}

// A handler can write its input only once, all of it together.
// `first`: number of the first packet in its queue.
void write_in_turn(QueueState &state, const char *originals, uint64_t count, uint64_t first, Writer write) {
  std::vector<Packet> out;
  bool taken = false;
  for (uint64_t index = 0; index < count; ++index) {
    const char *packet = originals + index * kPacket;
    Kernel *kernel = nullptr;
    if (is_dispatch(packet)) {
      uint64_t object;
      std::memcpy(&object, packet + offsetof(hsa_kernel_dispatch_packet_t, kernel_object), sizeof object);
      kernel = state.find(object);
    }
    if (!kernel || kernel->row == ~0ull || taken) {
      std::memcpy(out.emplace_back().bytes, packet, kPacket);
      if (kernel && taken)
        library->faults.tell(
            "several launches came at once: only the first waited for its turn, the others ran uninstrumented");
      continue;
    }
    take_turn(state, *kernel, first + index, packet, out);
    taken = true;
  }
  write(out.data(), out.size());
}

void write_all(QueueState &state, const char *originals, uint64_t count, Writer write) {
  // Few packets come at once.
  char few[8 * kPacket];
  std::string many;
  char *copies = few;
  if (count > sizeof few / kPacket) {
    many.resize(count * kPacket);
    copies = many.data();
  }
  Client &client = library->client;
  for (uint64_t index = 0; index < count; ++index) {
    hsa_kernel_dispatch_packet_t packet;
    std::memcpy(&packet, originals + index * kPacket, kPacket);
    if (is_dispatch(originals + index * kPacket)) {
      Kernel &kernel = *state.find(packet.kernel_object);
      const auto [number, chosen] = kernel.launched(packet, client, library->faults);
      if (chosen)
        kernel.substitute(packet);
      record(state, kernel, number, chosen, packet);
    }
    std::memcpy(copies + index * kPacket, &packet, kPacket);
  }
  write(copies, count);
}

void on_packets(const void *packets, uint64_t count, uint64_t first, void *data, Writer write) {
  auto &state = *static_cast<QueueState *>(data);
  const char *originals = static_cast<const char *>(packets);
  if (library->timing)
    for (uint64_t index = 0; index < count; ++index)
      library->timing->reused(completion_signal(originals + index * kPacket));
  if (library->client.wishes().launches)
    write_in_turn(state, originals, count, first, write);
  else
    write_all(state, originals, count, write);
}

void intercept(hsa_queue_t *queue, int gpu) {
  const auto &amd = library->runtime.amd;
  auto *state = new QueueState(static_cast<unsigned>(gpu), library->queues++, queue);
  if (library->timing)
    amd.hsa_amd_profiling_set_profiler_enabled_fn(queue, 1);
  if (amd.hsa_amd_queue_intercept_register_fn(queue, on_packets, state) != HSA_STATUS_SUCCESS)
    library->faults.tell("cannot intercept the packets of a queue");
}

// An intercepted queue; `size` is in packets.
hsa_status_t create_intercepted(hsa_agent_t agent, int gpu, uint32_t size, hsa_queue_type32_t type,
                                void (*callback)(hsa_status_t, hsa_queue_t *, void *), void *data,
                                uint32_t private_size, uint32_t group_size, hsa_queue_t **queue) {
  const bool is_shared = type == HSA_QUEUE_TYPE_COOPERATIVE;
  if (hsa_queue_t *known = is_shared && queue ? library->cooperative.of(agent) : nullptr) {
    *queue = known;
    return HSA_STATUS_SUCCESS;
  }
  const hsa_status_t status = library->runtime.amd.hsa_amd_queue_intercept_create_fn(agent, size, type, callback, data,
                                                                                     private_size, group_size, queue);
  if (status != HSA_STATUS_SUCCESS || !queue)
    return status;
  intercept(*queue, gpu);
  if (is_shared)
    library->cooperative.keep(agent, *queue);
  return status;
}

hsa_status_t destroy_queue(hsa_queue_t *queue) {
  return library->cooperative.has(queue) ? HSA_STATUS_SUCCESS : library->runtime.core.hsa_queue_destroy_fn(queue);
}

// When ROCr 7.2 shuts down, it deletes its cooperative queue twice if that is intercepted. Programs shut ROCr down when
// they end, so the queue can stay.
hsa_status_t shut_down() {
  return library->cooperative.empty() ? library->runtime.core.hsa_shut_down_fn() : HSA_STATUS_SUCCESS;
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
  const hsa_status_t status =
      create_intercepted(agent, gpu, size, type, callback, data, private_size, group_size, queue);
  if (status != HSA_STATUS_SUCCESS) {
    const hsa_status_t again = plain();
    if (again == HSA_STATUS_SUCCESS) // else the program's request is invalid
      library->faults.tell("a queue cannot be intercepted");
    return again;
  }
  return status;
}

#ifdef HSA_AMD_QUEUE_CREATE_DESC_VERSION

// Return whether an intercepted queue provides all that a descriptor asks for, except what can be set afterwards.
bool is_plain(const hsa_amd_queue_create_desc_t &wanted) {
  return wanted.version == HSA_AMD_QUEUE_CREATE_DESC_VERSION && wanted.engine_type == HSA_AMD_QUEUE_ENGINE_COMPUTE &&
         wanted.queue_size_bytes && wanted.queue_size_bytes % kPacket == 0 && wanted.traffic_class == 0;
}

// The newer way to make queues, several at once. The placement of their rings affects only speed.
hsa_status_t create_queues(hsa_agent_t agent, hsa_amd_queue_create_desc_t *all, uint32_t count) {
  const auto &amd = library->runtime.amd;
  const int gpu = library->runtime.number_of(agent);
  if (gpu < 0 || !all)
    return amd.hsa_amd_queue_create_fn(agent, all, count);
  hsa_status_t first = HSA_STATUS_SUCCESS;
  for (uint32_t index = 0; index < count; ++index) {
    hsa_amd_queue_create_desc_t &wanted = all[index];
    const auto &compute = wanted.engine.compute;
    wanted.queue = nullptr;
    if (is_plain(wanted) && create_intercepted(agent, gpu, wanted.queue_size_bytes / kPacket, compute.type,
                                               wanted.callback, wanted.callback_data, compute.private_segment_size,
                                               UINT32_MAX, &wanted.queue) == HSA_STATUS_SUCCESS) {
      if (wanted.priority != HSA_AMD_QUEUE_PRIORITY_NORMAL)
        amd.hsa_amd_queue_set_priority_fn(wanted.queue, wanted.priority);
      if (compute.cu_mask_count)
        amd.hsa_amd_queue_cu_set_mask_fn(wanted.queue, compute.cu_mask_count, compute.cu_mask);
      continue;
    }
    const hsa_status_t status = amd.hsa_amd_queue_create_fn(agent, &wanted, 1);
    if (status != HSA_STATUS_SUCCESS)
      first = first == HSA_STATUS_SUCCESS ? status : first;
    else if (wanted.engine_type == HSA_AMD_QUEUE_ENGINE_COMPUTE)
      library->faults.tell("a queue cannot be intercepted");
  }
  return first;
}

void intercept_newer_queues(HsaApiTable &table) {
  if (void **place = slot(table.amd_ext_, &AmdExtTable::hsa_amd_queue_create_fn))
    *place = reinterpret_cast<void *>(create_queues);
}

#else

// The descriptors of queues are not known without the headers of such a ROCr.
void intercept_newer_queues(HsaApiTable &) {
  Dl_info rocr{};
  dladdr(reinterpret_cast<void *>(library->runtime.loader.hsa_ven_amd_loader_query_executable), &rocr);
  void *opened = rocr.dli_fname ? dlopen(rocr.dli_fname, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (opened && dlsym(opened, "hsa_amd_queue_create"))
    library->faults.tell("queues made with hsa_amd_queue_create run uninstrumented: Luthier was built with the "
                         "headers of a ROCm without that function");
}

#endif

hsa_status_t freeze_executable(hsa_executable_t executable, const char *options) {
  const hsa_status_t status = library->runtime.core.hsa_executable_freeze_fn(executable, options);
  if (status == HSA_STATUS_SUCCESS)
    try {
      library->kernels.keep(executable);
      if (library->client.wishes().code_objects)
        library->kernels.announce(executable);
    } catch (const std::exception &problem) {
      library->faults.tell(problem.what());
    }
  return status;
}

// HIP iterates over the agents when it starts, while none of its calls is under way: calls under way must not start to
// be reported. HIP may be loaded after ROCr.
hsa_status_t iterate_agents(hsa_status_t (*callback)(hsa_agent_t, void *), void *data) {
  library->tell_of_hip();
  return library->runtime.core.hsa_iterate_agents_fn(callback, data);
}

hsa_status_t destroy_executable(hsa_executable_t executable) {
  library->kernels.forget(executable);
  return library->runtime.core.hsa_executable_destroy_fn(executable);
}

// Where launches are timed, other uses of their signals must be seen.

hsa_status_t destroy_signal(hsa_signal_t signal) {
  library->timing->reused(signal);
  return library->runtime.core.hsa_signal_destroy_fn(signal);
}

hsa_status_t copy_memory(void *to, hsa_agent_t to_agent, const void *from, hsa_agent_t from_agent, size_t size,
                         uint32_t count, const hsa_signal_t *waits, hsa_signal_t completion) {
  library->timing->reused(completion);
  return library->runtime.amd.hsa_amd_memory_async_copy_fn(to, to_agent, from, from_agent, size, count, waits,
                                                           completion);
}

hsa_status_t copy_memory_rect(const hsa_pitched_ptr_t *to, const hsa_dim3_t *to_offset, const hsa_pitched_ptr_t *from,
                              const hsa_dim3_t *from_offset, const hsa_dim3_t *range, hsa_agent_t agent,
                              hsa_amd_copy_direction_t direction, uint32_t count, const hsa_signal_t *waits,
                              hsa_signal_t completion) {
  library->timing->reused(completion);
  return library->runtime.amd.hsa_amd_memory_async_copy_rect_fn(to, to_offset, from, from_offset, range, agent,
                                                                direction, count, waits, completion);
}

} // namespace

} // namespace luthier

extern "C" {

bool OnLoad(HsaApiTable *table, uint64_t, uint64_t, const char *const *) {
  using namespace luthier;
  if (table->core_->hsa_executable_destroy_fn == in_place)
    return true;
  try {
    library = new Library(*table); // again if the runtime was shut down and starts again
  } catch (const std::exception &problem) {
    std::fprintf(stderr, "luthier: nothing is instrumented: %s\n", problem.what());
    return false;
  }
  static const int registered = std::atexit([] { library->finish(); });
  (void)registered;
  table->core_->hsa_queue_create_fn = create_queue;
  table->core_->hsa_queue_destroy_fn = destroy_queue;
  table->core_->hsa_shut_down_fn = shut_down;
  table->core_->hsa_executable_destroy_fn = destroy_executable;
  if (library->timing) {
    table->core_->hsa_signal_destroy_fn = destroy_signal;
    *slot(table->amd_ext_, &AmdExtTable::hsa_amd_memory_async_copy_fn) = reinterpret_cast<void *>(copy_memory);
    *slot(table->amd_ext_, &AmdExtTable::hsa_amd_memory_async_copy_rect_fn) =
        reinterpret_cast<void *>(copy_memory_rect);
  }
  table->core_->hsa_executable_freeze_fn = freeze_executable;
  try {
    intercept_newer_queues(*table);
    const wire::Wishes &wishes = library->client.wishes();
    if (wishes.stacks)
      find_interpreter();
    if (!wishes.hsa.empty() || !wishes.hip.empty() || !wishes.memory.empty() || wishes.ranges) {
      EventLog &log = library->events.emplace(library->client, library->faults);
      if (wishes.ranges)
        tell_of_ranges(log, library->faults);
      if (!wishes.memory.empty())
        tell_of_memory(log, wishes.memory);
    }
    if (!wishes.hip.empty()) {
      table->core_->hsa_iterate_agents_fn = iterate_agents;
      mend_hip_callbacks(*table);
    }
    if (!wishes.hsa.empty())
      tell_of_hsa(*table, *library->events, wishes.hsa);
  } catch (const std::exception &problem) {
    library->faults.tell(problem.what());
  }
  in_place = table->core_->hsa_executable_destroy_fn;
  return true;
}

void OnUnload() { // signals are still there
  if (luthier::library)
    luthier::library->finish_timing();
}
}
