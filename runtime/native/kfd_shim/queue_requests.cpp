// Queues, and events that they and the driver raise.
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernel_driver.h"
#include "user_memory.h"

namespace luthier {

const BoxFields &KernelDriver::box_fields(unsigned node) const {
  const std::string &target = system_.room.service.setup().gpus[node - 1].target;
  return target.compare(0, 5, "gfx12") == 0 ? kBoxFieldsOfGfx12 : kBoxFields;
}

int KernelDriver::create_queue(kfd::CreateQueue &a) {
  const unsigned node = node_of(a.gpu_id);
  char *ring = reinterpret_cast<char *>(a.ring_base_address);
  auto *write = reinterpret_cast<uint64_t *>(a.write_pointer_address);
  auto *read = reinterpret_cast<uint64_t *>(a.read_pointer_address);
  if (!node || !ring || !write || !read || !a.ring_size || (a.ring_size & (a.ring_size - 1)))
    return -EINVAL;
  if (!is_readable(a.ring_base_address, a.ring_size) || !is_readable(a.write_pointer_address, sizeof *write) ||
      !is_readable(a.read_pointer_address, sizeof *read))
    return -EFAULT;
  std::unique_ptr<Queue> queue;
  switch (a.queue_type) {
  case KFD_IOC_QUEUE_TYPE_COMPUTE_AQL:
    queue = std::make_unique<AqlQueue>(system_.room, node, node - 1, ring, a.ring_size, write, read);
    break;
  case kfd::kQueueOfCopyEngine: // all of them are alike
    if (a.sdma_engine_id >= topology::kCopyEngines)
      return -EINVAL;
    [[fallthrough]];
  case KFD_IOC_QUEUE_TYPE_SDMA:
  case KFD_IOC_QUEUE_TYPE_SDMA_XGMI:
    queue = std::make_unique<SdmaQueue>(system_.room, node, box_fields(node), ring, a.ring_size, write, read);
    break;
  default:
    return -EINVAL;
  }
  const bool computes = a.queue_type == KFD_IOC_QUEUE_TYPE_COMPUTE_AQL;
  if (computes && system_.debugging.is_enabled() && is_readable(a.ctx_save_restore_address, a.ctx_save_restore_size))
    static_cast<AqlQueue &>(*queue).set_save_area(reinterpret_cast<char *>(a.ctx_save_restore_address),
                                                  a.ctx_save_restore_size, a.ctl_stack_size);
  a.queue_id = system_.add(std::move(queue));
  {
    std::lock_guard lock(process_.mutex);
    process_.queues[a.queue_id] = a;
  }
  a.doorbell_offset = kDoorbells | a.queue_id % kDoorbellSlots * sizeof(uint64_t);
  return 0;
}

int KernelDriver::destroy_queue(kfd_ioctl_destroy_queue_args &a) {
  std::lock_guard lock(process_.mutex); // a debugger may be using the queue
  process_.queues.erase(a.queue_id);
  return system_.remove(a.queue_id) ? 0 : -EINVAL;
}

// A share of 0 percent suspends the queue.
int KernelDriver::update_queue(kfd_ioctl_update_queue_args &a) {
  Queue *queue = system_.queue(a.queue_id);
  if (!queue)
    return -EINVAL;
  queue->set_active(a.queue_percentage != 0);
  return 0;
}

// The choice of compute units makes no difference here.
int KernelDriver::set_cu_mask(kfd_ioctl_set_cu_mask_args &a) { return system_.queue(a.queue_id) ? 0 : -EINVAL; }

// Barriers of the whole grid, for cooperative launches.
int KernelDriver::alloc_queue_gws(kfd_ioctl_alloc_queue_gws_args &a) {
  auto *queue = dynamic_cast<AqlQueue *>(system_.queue(a.queue_id));
  if (!queue)
    return -EINVAL;
  if (a.num_gws > layout::GRID_BARRIERS)
    return -EBUSY;
  queue->set_cooperative();
  a.first_gws = 0;
  return 0;
}

int KernelDriver::create_event(kfd_ioctl_create_event_args &a) {
  if (a.event_page_offset) { // the handle of the memory for mailboxes
    std::lock_guard lock(process_.mutex);
    const auto page = process_.buffers.find(a.event_page_offset);
    constexpr uint64_t kSize = kMaxEvents * sizeof(uint64_t);
    if (page == process_.buffers.end() || page->second.object->size < kSize ||
        !is_readable(page->second.address, kSize))
      return -EINVAL;
    system_.events.move(reinterpret_cast<uint64_t *>(page->second.address));
  }
  const unsigned id = system_.events.create(!a.auto_reset, false);
  if (!id)
    return -ENOSPC;
  a.event_id = a.event_slot_index = a.event_trigger_data = id;
  const bool has_mailbox = a.event_type == KFD_IOC_EVENT_SIGNAL || a.event_type == KFD_IOC_EVENT_DEBUG_EVENT;
  a.event_page_offset = has_mailbox ? kMailboxes : 0;
  {
    std::lock_guard lock(process_.mutex);
    process_.event_types[id] = a.event_type;
  }
  if (a.event_type == KFD_IOC_EVENT_MEMORY)
    system_.on_fault([&events = system_.events, id](const System::MemoryFault &) { events.raise(id); });
  return 0;
}

int KernelDriver::destroy_event(kfd_ioctl_destroy_event_args &a) {
  return system_.events.destroy(a.event_id) ? 0 : -EINVAL;
}
int KernelDriver::set_event(kfd_ioctl_set_event_args &a) { return system_.events.raise(a.event_id) ? 0 : -EINVAL; }
int KernelDriver::reset_event(kfd_ioctl_reset_event_args &a) { return system_.events.lower(a.event_id) ? 0 : -EINVAL; }

int KernelDriver::wait_events(kfd_ioctl_wait_events_args &a) {
  if (a.num_events > kMaxEvents)
    return -EINVAL;
  std::vector<kfd::EventData> all(a.num_events);
  const size_t size = a.num_events * sizeof all[0];
  if (!copy_from_user(all.data(), a.events_ptr, size))
    return -EFAULT;
  const auto type_of = [&](unsigned id) {
    const auto entry = process_.event_types.find(id);
    return entry == process_.event_types.end() ? ~0u : entry->second;
  };
  std::vector<Events::Awaited> awaited;
  {
    std::lock_guard lock(process_.mutex);
    for (const kfd::EventData &event : all)
      awaited.push_back({event.event_id, type_of(event.event_id) == KFD_IOC_EVENT_SIGNAL ? event.last_age : 0});
  }
  const bool forever = a.timeout == 0xFFFF'FFFF;
  if (!system_.events.wait(awaited, a.wait_for_all, forever ? -1 : int64_t{a.timeout})) {
    a.wait_result = KFD_IOC_WAIT_RESULT_TIMEOUT;
    return 0;
  }
  a.wait_result = KFD_IOC_WAIT_RESULT_COMPLETE;
  const auto fault = system_.fault();
  bool has_changed = false;
  std::lock_guard lock(process_.mutex);
  for (unsigned index = 0; index < a.num_events; ++index) {
    if (awaited[index].age && awaited[index].age != all[index].last_age) {
      all[index].last_age = awaited[index].age;
      has_changed = true;
    }
    if (fault && type_of(awaited[index].id) == KFD_IOC_EVENT_MEMORY) {
      kfd_hsa_memory_exception_data &exception = all[index].memory = {};
      exception.failure.NotPresent = 1;
      exception.va = fault->address;
      exception.gpu_id = gpu_id_of(fault->node);
      has_changed = true;
    }
  }
  return has_changed && !copy_to_user(a.events_ptr, all.data(), size) ? -EFAULT : 0;
}

// A file with a line for each system event that is in the mask that the program has written to it. Only memory faults
// occur: nothing migrates, throttles or is reset.
int KernelDriver::watch_system(kfd_ioctl_smi_events_args &a) {
  const unsigned node = node_of(a.gpuid);
  int ends[2];
  if (!node)
    return -EINVAL;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return -ENOMEM;
  system_.on_fault([node, end = ends[1], wanted = uint64_t{0}](const System::MemoryFault &fault) mutable {
    for (uint64_t mask; recv(end, &mask, sizeof mask, 0) == sizeof mask;)
      wanted = mask;
    char line[KFD_SMI_EVENT_MSG_SIZE];
    const int length =
        std::snprintf(line, sizeof line, "%x %x:%s\n", KFD_SMI_EVENT_VMFAULT, getpid(), program_invocation_short_name);
    if (fault.node == node && wanted & KFD_SMI_EVENT_MASK_FROM_INDEX(KFD_SMI_EVENT_VMFAULT))
      send(end, line, std::min<size_t>(length, sizeof line - 1), MSG_NOSIGNAL);
  });
  a.anon_fd = ends[0];
  return 0;
}

} // namespace luthier
