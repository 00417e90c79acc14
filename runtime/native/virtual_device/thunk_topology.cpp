// Nodes: the host, then a node a GPU.
#include <ctime>
#include <unistd.h>

#include "thunk.h"

using namespace luthier;

namespace {

// What `work` gets is the GPU, or null for the host.
template <typename Work> HSAKMT_STATUS with_node(HSAuint32 node, Work work) {
  return guarded([&](System &system) {
    if (node >= system.nodes())
      return HSAKMT_STATUS_INVALID_NODE_UNIT;
    return work(system, node ? &system.gpus()[node - 1] : nullptr);
  });
}

uint64_t nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000ull + now.tv_nsec;
}

}  // namespace

extern "C" {

HSAKMT_STATUS hsaKmtOpenKFD() {
  try {
    System::open();
    return HSAKMT_STATUS_SUCCESS;
  } catch (const std::exception &problem) {
    std::fprintf(stderr, "luthier: no virtual device: %s\n", problem.what());
    return HSAKMT_STATUS_KERNEL_IO_CHANNEL_NOT_OPENED;
  }
}

HSAKMT_STATUS hsaKmtCloseKFD() {
  return guarded([](System &) { return HSAKMT_STATUS_SUCCESS; });
}

HSAKMT_STATUS hsaKmtGetVersion(HsaVersionInfo *info) {
  return guarded([&](System &) {
    info->KernelInterfaceMajorVersion = 1;
    info->KernelInterfaceMinorVersion = 8;
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtAcquireSystemProperties(HsaSystemProperties *properties) {
  return guarded([&](System &system) {
    *properties = {};
    properties->NumNodes = system.nodes();
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtReleaseSystemProperties() {
  return guarded([](System &) { return HSAKMT_STATUS_SUCCESS; });
}

HSAKMT_STATUS hsaKmtGetNodeProperties(HSAuint32 node, HsaNodeProperties *properties) {
  return with_node(node, [&](System &system, const Gpu *gpu) {
    HsaNodeProperties &p = *properties;
    p = {};
    p.DrmRenderMinor = -1;
    p.NumCaches = 2;
    if (!gpu) {
      p.NumCPUCores = sysconf(_SC_NPROCESSORS_ONLN);
      p.NumMemoryBanks = 1;
      p.NumIOLinks = system.gpus().size();
      p.MaxEngineClockMhzCCompute = 3000;
      std::strcpy(reinterpret_cast<char *>(p.AMDName), "host");
      const char name[] = "Host of Luthier's virtual devices";
      std::copy(name, name + sizeof name, p.MarketingName);
      return HSAKMT_STATUS_SUCCESS;
    }
    p.NumMemoryBanks = 3;
    p.NumIOLinks = system.gpus().size();
    p.NumFComputeCores = gpu->units * gpu->simds_per_unit;
    p.NumSIMDPerCU = gpu->simds_per_unit;
    p.NumShaderBanks = 1;
    p.NumArrays = 1;
    p.NumCUPerArray = gpu->units;
    p.MaxWavesPerSIMD = gpu->waves_per_simd;
    p.MaxSlotsScratchCU = 32;
    p.LDSSizeInKB = gpu->lds_bytes / 1024;
    p.WaveFrontSize = gpu->wave_size;
    p.NumGws = 64;
    p.EngineId.ui32.Major = gpu->major;
    p.EngineId.ui32.Minor = gpu->minor;
    p.EngineId.ui32.Stepping = gpu->stepping;
    p.Capability.ui32.DoorbellType = 2;
    p.Capability.ui32.QueueSizePowerOfTwo = 1;
    p.VendorId = 0x1002;
    p.DeviceId = gpu->device_id;
    p.LocationId = node << 8;
    p.MaxEngineClockMhzFCompute = gpu->clock_mhz;
    p.MaxEngineClockMhzCCompute = 3000;
    p.NumSdmaEngines = 2;
    p.NumSdmaQueuesPerEngine = 8;
    p.NumCpQueues = 24;
    p.UniqueID = 0x4C75746869657200 + node;
    const std::string name = "Luthier virtual " + gpu->target;
    std::copy(name.begin(), name.end(), p.MarketingName);
    std::copy(gpu->target.begin(), gpu->target.end(), p.AMDName);
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtGetNodeMemoryProperties(HSAuint32 node, HSAuint32 banks, HsaMemoryProperties *properties) {
  return with_node(node, [&](System &system, const Gpu *gpu) {
    std::vector<HsaMemoryProperties> all(gpu ? 3 : 1);
    if (gpu) {
      all[0].HeapType = HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC;
      all[0].SizeInBytes = gpu->memory_bytes;
      all[0].Width = 4096;
      all[0].MemoryClockMax = 1600;
      all[1].HeapType = HSA_HEAPTYPE_GPU_LDS;
      all[1].SizeInBytes = gpu->lds_bytes;
      all[1].VirtualBaseAddress = system.service.setup().engine.shared_base;
      all[2].HeapType = HSA_HEAPTYPE_GPU_SCRATCH;
      all[2].SizeInBytes = uint64_t{4} << 30;
      all[2].VirtualBaseAddress = system.service.setup().engine.private_base;
    } else {
      all[0].HeapType = HSA_HEAPTYPE_SYSTEM;
      all[0].SizeInBytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
    }
    for (HSAuint32 bank = 0; bank < banks; ++bank)
      properties[bank] = bank < all.size() ? all[bank] : HsaMemoryProperties{};
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtGetNodeCacheProperties(HSAuint32 node, HSAuint32, HSAuint32 count, HsaCacheProperties *caches) {
  return with_node(node, [&](System &, const Gpu *gpu) {
    for (HSAuint32 index = 0; index < count; ++index) {
      HsaCacheProperties &cache = caches[index];
      cache = {};
      cache.CacheLevel = index + 1;
      cache.CacheSize = index ? 4096 : 16;  // KiB
      cache.CacheLineSize = 64;
      cache.CacheType.ui32.Data = 1;
      cache.CacheType.ui32.CPU = !gpu;
      cache.CacheType.ui32.HSACU = gpu != nullptr;
    }
    return HSAKMT_STATUS_SUCCESS;
  });
}

// The host has a link to each GPU, and each GPU one to the host and to every other GPU.
HSAKMT_STATUS hsaKmtGetNodeIoLinkProperties(HSAuint32 node, HSAuint32 count, HsaIoLinkProperties *links) {
  return with_node(node, [&](System &system, const Gpu *) {
    HSAuint32 index = 0;
    for (unsigned other = 0; other < system.nodes() && index < count; ++other) {
      if (other == node)
        continue;
      HsaIoLinkProperties &link = links[index++];
      link = {};
      link.IoLinkType = HSA_IOLINKTYPE_PCIEXPRESS;
      link.NodeFrom = node;
      link.NodeTo = other;
      link.Weight = node && other ? 40 : 20;
    }
    for (; index < count; ++index)
      links[index] = {};
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtGetTileConfig(HSAuint32 node, HsaGpuTileConfig *config) {
  return with_node(node, [&](System &, const Gpu *gpu) {
    if (!gpu)
      return HSAKMT_STATUS_INVALID_NODE_UNIT;
    config->NumTileConfigs = config->NumMacroTileConfigs = 0;  // there are no images
    config->GbAddrConfig = 0;
    config->NumBanks = config->NumRanks = 0;
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtGetClockCounters(HSAuint32 node, HsaClockCounters *counters) {
  return with_node(node, [&](System &, const Gpu *) {
    counters->CPUClockCounter = nanoseconds(CLOCK_MONOTONIC_RAW);
    counters->SystemClockCounter = nanoseconds(CLOCK_BOOTTIME);
    counters->SystemClockFrequencyHz = 1'000'000'000;
    counters->GPUClockCounter = counters->SystemClockCounter / 10;
    return HSAKMT_STATUS_SUCCESS;
  });
}

// Retry of memory faults is off, and no device here has it.
HSAKMT_STATUS hsaKmtGetXNACKMode(HSAint32 *enable) {
  return guarded([&](System &) {
    *enable = 0;
    return HSAKMT_STATUS_SUCCESS;
  });
}

HSAKMT_STATUS hsaKmtSetXNACKMode(HSAint32 enable) {
  return guarded([&](System &) { return enable ? HSAKMT_STATUS_NOT_SUPPORTED : HSAKMT_STATUS_SUCCESS; });
}

// A debugger's door: there is none, but where the runtime lists its code objects is worth knowing.
HSAKMT_STATUS hsaKmtRuntimeEnable(void *r_debug, bool) {
  return guarded([&](System &system) {
    system.plans.set_loaded(r_debug);
    return HSAKMT_STATUS_NOT_SUPPORTED;
  });
}

HSAKMT_STATUS hsaKmtRuntimeDisable() {
  return guarded([](System &) { return HSAKMT_STATUS_NOT_SUPPORTED; });
}
}
