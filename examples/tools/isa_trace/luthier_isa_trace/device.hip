// Device side of the instruction tracer: a record for each straight-line segment that a wave enters, and for each
// access.
#include <hip/hip_runtime.h>
#include <luthier/channel.h>
#include <luthier/waves.h>

MARK_LUTHIER_DEVICE_MODULE

/// A wave enters a segment: instructions that it executes one after the other, under one EXEC.
struct Step {
  uint64_t exec;
  uint32_t x, y, z, wave; // work-group, and the wave's number in it
  uint32_t site;          // the segment's number
};
LUTHIER_RECORD(Step, exec, x, y, z, wave, site)

/// A wave accesses memory.
struct Access {
  uint64_t where, lanes; // see luthier::WaveAddress; lanes 0: the wave, once
  uint32_t x, y, z, wave;
  uint32_t site; // the instruction's number | `kWhole`
};
LUTHIER_RECORD(Access, where, lanes, x, y, z, wave, site)

/// Flag of a site: `where` is only an address.
constexpr uint32_t kWhole = 1u << 31;

__device__ luthier::channel<Step> steps;
__device__ luthier::channel<Access> addresses;

/// @param z blockIdx.z, or 0 if it is not available
/// @param width lanes of a wave
LUTHIER_HOOK_ANNOTATE step(uint32_t site, uint32_t z, uint32_t width) {
  const uint32_t wave = luthier::waveNumber(threadIdx.x, threadIdx.y, threadIdx.z, width);
  steps.pushWave({__builtin_amdgcn_read_exec(), blockIdx.x, blockIdx.y, z, wave, site});
}

/// @param unit binary logarithm of the unit of distances between lanes
LUTHIER_HOOK_ANNOTATE access(uint64_t address, uint32_t site, uint32_t unit, uint32_t z, uint32_t width) {
  const uint32_t wave = luthier::waveNumber(threadIdx.x, threadIdx.y, threadIdx.z, width);
  const luthier::WaveAddress some = luthier::waveAddress(address, unit);
  if (some.records)
    addresses.push({some.where, some.lanes, blockIdx.x, blockIdx.y, z, wave, some.isEven ? site : site | kWhole});
}

/// A scalar instruction accesses memory, once for its wave.
LUTHIER_HOOK_ANNOTATE access_wave(uint64_t address, uint32_t site, uint32_t z, uint32_t width) {
  const uint32_t wave = luthier::waveNumber(threadIdx.x, threadIdx.y, threadIdx.z, width);
  addresses.pushWave({address, 0, blockIdx.x, blockIdx.y, z, wave, site | kWhole});
}
