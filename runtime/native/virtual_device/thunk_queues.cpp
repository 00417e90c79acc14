// Events and queues.
#include "thunk.h"

using namespace luthier;

extern "C" {

HSAKMT_STATUS hsaKmtCreateEvent(HsaEventDescriptor *descriptor, bool manual, bool raised, HsaEvent **event) {
  return guarded([&](System &system) {
    if (descriptor->EventType >= HSA_EVENTTYPE_MAXID)
      return HSAKMT_STATUS_INVALID_PARAMETER;
    const unsigned id = system.events.create(manual, raised);
    if (!id)
      return HSAKMT_STATUS_OUT_OF_RESOURCES;
    auto made = std::make_unique<HsaEvent>();
    made->EventId = id;
    made->EventData.EventType = descriptor->EventType;
    made->EventData.HWData2 = number(system.events.mailbox(id));
    made->EventData.HWData3 = id;
    if (descriptor->EventType == HSA_EVENTTYPE_MEMORY)
      system.watch_faults(id);
    *event = made.release();
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtDestroyEvent(HsaEvent *event) {
  return guarded([&](System &system) {
    if (!event || !system.events.destroy(event->EventId))
      return HSAKMT_STATUS_INVALID_HANDLE;
    delete event;
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtSetEvent(HsaEvent *event) {
  return guarded([&](System &system) {
    return event && system.events.raise(event->EventId) ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_INVALID_HANDLE;
  });
}

HSAKMT_STATUS hsaKmtWaitOnMultipleEvents(HsaEvent *events[], HSAuint32 count, bool all, HSAuint32 milliseconds) {
  return guarded([&](System &system) {
    std::vector<unsigned> ids;
    for (HSAuint32 index = 0; index < count; ++index) {
      if (!events[index])
        return HSAKMT_STATUS_INVALID_HANDLE;
      ids.push_back(events[index]->EventId);
    }
    const int64_t time = milliseconds == HSA_EVENTTIMEOUT_INFINITE ? -1 : int64_t{milliseconds};
    if (!system.events.wait(ids, all, time))
      return HSAKMT_STATUS_WAIT_TIMEOUT;
    if (const auto fault = system.fault())
      for (HSAuint32 index = 0; index < count; ++index)
        if (events[index]->EventData.EventType == HSA_EVENTTYPE_MEMORY) {
          HsaMemoryAccessFault &told = events[index]->EventData.EventData.MemoryAccessFault;
          told.NodeId = fault->node;
          told.VirtualAddress = fault->address;
          told.Failure = {};
          told.Failure.NotPresent = 1;
          told.Flags = HSA_EVENTID_MEMORY_FATAL_PROCESS;
        }
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtWaitOnEvent(HsaEvent *event, HSAuint32 milliseconds) {
  return hsaKmtWaitOnMultipleEvents(&event, 1, true, milliseconds);
}

HSAKMT_STATUS hsaKmtCreateQueue(HSAuint32 node, HSA_QUEUE_TYPE type, HSAuint32, HSA_QUEUE_PRIORITY, void *ring,
                                HSAuint64 size, HsaEvent *, HsaQueueResource *resource) {
  return guarded([&](System &system) {
    if (node == 0 || node >= system.nodes())
      return HSAKMT_STATUS_INVALID_NODE_UNIT;
    if (!ring || !size || (size & (size - 1)))
      return HSAKMT_STATUS_INVALID_PARAMETER;
    char *bytes = static_cast<char *>(ring);
    std::unique_ptr<Queue> queue;
    switch (type) {
    case HSA_QUEUE_COMPUTE_AQL:
      if (!resource->QueueWptrValue || !resource->QueueRptrValue)
        return HSAKMT_STATUS_INVALID_PARAMETER;
      queue = std::make_unique<AqlQueue>(system.room, node, node - 1, bytes, size, resource->Queue_write_ptr_aql,
                                         resource->Queue_read_ptr_aql);
      break;
    case HSA_QUEUE_SDMA:
    case HSA_QUEUE_SDMA_XGMI: {
      // Its indices are the driver's; they outlive the queue, which its owner still reads.
      auto *indices = new uint64_t[2]{};
      resource->Queue_write_ptr_aql = indices;
      resource->Queue_read_ptr_aql = indices + 1;
      queue = std::make_unique<SdmaQueue>(system.room, node, bytes, size, indices, indices + 1);
      break;
    }
    default:
      return HSAKMT_STATUS_NOT_SUPPORTED;
    }
    resource->Queue_DoorBell_aql = queue->doorbell();
    resource->QueueId = system.add(std::move(queue));
    return HSAKMT_STATUS_SUCCESS;
  });
}

// A share of 0 percent suspends the queue.
HSAKMT_STATUS hsaKmtUpdateQueue(HSA_QUEUEID id, HSAuint32 percentage, HSA_QUEUE_PRIORITY, void *, HSAuint64,
                                HsaEvent *) {
  return guarded([&](System &system) {
    Queue *queue = system.queue(id);
    if (!queue)
      return HSAKMT_STATUS_INVALID_HANDLE;
    queue->set_active(percentage != 0);
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtDestroyQueue(HSA_QUEUEID id) {
  return guarded([&](System &system) {
    return system.remove(id) ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_INVALID_HANDLE;
  });
}

// Which compute units execute makes no difference here.
HSAKMT_STATUS hsaKmtSetQueueCUMask(HSA_QUEUEID id, HSAuint32 count, HSAuint32 *mask) {
  return guarded([&](System &system) {
    if (!count || count % 32 || !mask)
      return HSAKMT_STATUS_INVALID_PARAMETER;
    return system.queue(id) ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_INVALID_HANDLE;
  });
}

// Barriers of the whole grid, for cooperative launches.
HSAKMT_STATUS hsaKmtAllocQueueGWS(HSA_QUEUEID id, HSAuint32 count, HSAuint32 *first) {
  return guarded([&](System &system) {
    auto *queue = dynamic_cast<AqlQueue *>(system.queue(id));
    if (!queue)
      return HSAKMT_STATUS_INVALID_HANDLE;
    if (count > layout::GRID_BARRIERS)
      return HSAKMT_STATUS_OUT_OF_RESOURCES;
    queue->set_cooperative();
    if (first)
      *first = 0;
    return HSAKMT_STATUS_SUCCESS;
  });
}

// Traps are handled by the device itself, as the runtime's own handler would.
HSAKMT_STATUS hsaKmtSetTrapHandler(HSAuint32 node, void *, HSAuint64, void *, HSAuint64) {
  return guarded([&](System &system) {
    return node && node < system.nodes() ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_INVALID_NODE_UNIT;
  });
}
}
