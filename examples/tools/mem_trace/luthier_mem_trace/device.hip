// Device side of the memory tracer: a record for each access of a wave with evenly spaced addresses, otherwise for each
// lane.
#include <hip/hip_runtime.h>
#include <luthier/channel.h>
#include <luthier/waves.h>

MARK_LUTHIER_DEVICE_MODULE

/// One memory access by some lanes of a wave.
struct Access {
  uint64_t where;     // address of lane 0 in 48 bits, and above them its distance to lane 1 in `unit`s; see `kWhole`
  uint64_t lanes;     // those that access memory; 0: the wave, once
  uint32_t workgroup; // in the first dimension
  uint32_t site;      // the instruction's number | `kWhole`
};
LUTHIER_RECORD(Access, where, lanes, workgroup, site)

/// Flag of a site: `where` is only an address.
constexpr uint32_t kWhole = 1u << 31;

__device__ luthier::channel<Access> accesses;

/// A vector instruction accesses memory, in every active lane.
///
/// @param unit binary logarithm of the unit of distances
LUTHIER_HOOK_ANNOTATE access(uint64_t address, uint32_t site, uint32_t unit) {
  const luthier::WaveAddress some = luthier::waveAddress(address, unit);
  if (some.records)
    accesses.push({some.where, some.lanes, __builtin_amdgcn_workgroup_id_x(), some.isEven ? site : site | kWhole});
}

/// A scalar instruction accesses memory, once for its wave.
LUTHIER_HOOK_ANNOTATE access_wave(uint64_t address, uint32_t site) {
  accesses.pushWave({address, 0, __builtin_amdgcn_workgroup_id_x(), site | kWhole});
}
