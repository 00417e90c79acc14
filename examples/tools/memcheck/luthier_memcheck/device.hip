// Device side of the memory check: whether each access is in the program's memory.
//
// The host divides all addresses into stretches, each allowed or forbidden. Most instructions access the same stretch
// each time: it is remembered, and compared first.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

namespace {

constexpr uint32_t kSites = 16384, kStretches = 16384, kFindings = 4096, kSizes = 8, kHeld = 1024;

/// First address of a stretch, and the number of its addresses at which an access of some size may begin; 0 if
/// forbidden.
struct alignas(16) Bound {
  uint64_t begin, room;
};

/// Addresses up to the next stretch's, for each size.
struct Stretch {
  Bound of[kSizes];
};

/// Data of most accesses, at one address: for each site the byte offset of its last stretch, an empty one at first; and
/// all stretches in the order of their addresses, from 0 on.
struct Known {
  Bound nothing;
  uint32_t last[kSites];
  alignas(16) Stretch stretches[kStretches];
};

/// Bad accesses at one site to one stretch: the first one, and the number of lanes.
struct Finding {
  uint64_t key; // 1 + site | name << 32; 0: free
  uint64_t lanes, address;
  uint32_t launch, group, place; // wave << 6 | lane
  uint32_t lds;                  // bytes of the work-group
};

/// A launch: its number, its work-groups in three dimensions, the work-items of one in two, its bytes of LDS, and the
/// number of them at which an access of each size may begin.
struct Launch {
  uint32_t number, groups[3], items[2], lds, room[kSizes];
};

constexpr uint32_t kUnknown = ~0u;

/// Names that are not stretches: before and after LDS.
enum : uint32_t { kBeforeLds = 0, kBehindLds = 1 };

template <typename T> using Constant = const __attribute__((address_space(4))) T;

} // namespace

__device__ Known known;
/// Written by the host before each launch, as are the stretches: names of stretches, their number, and the launch.
__device__ uint32_t names[kStretches];
__device__ uint32_t stretch_count = 0;
__device__ Launch launch;

/// Values that kernels hold in registers: bounds of addresses, or a limit in the second one.
__device__ uint64_t held[kHeld][2];

__device__ Finding findings[kFindings];
/// Lanes without room for their findings.
__device__ uint64_t lost = 0;

namespace {

__device__ inline uint32_t number_of(uint64_t address, uint32_t count) {
  uint32_t low = 0;
  for (uint32_t high = count; high - low > 1;) {
    const uint32_t middle = (low + high) / 2;
    (known.stretches[middle].of[0].begin <= address ? low : high) = middle;
  }
  return low;
}

/// Position of a lane, in three dimensions.
struct Lane {
  uint32_t group[3], item[3];

  __device__ uint32_t group_number() const {
    if (group[2] == kUnknown)
      return launch.groups[2] > 1 ? kUnknown : group[0] + launch.groups[0] * group[1];
    return group[0] + launch.groups[0] * (group[1] + launch.groups[1] * group[2]);
  }
  __device__ uint32_t wave(uint32_t width) const {
    return (item[0] + launch.items[0] * (item[1] + launch.items[1] * item[2])) / width;
  }
};

/// Adds to a number, and waits for it. So nothing is outstanding where the rare path of a hook meets the usual one,
/// which then needs no wait.
__device__ inline void add(uint64_t *place, uint64_t value) {
  const uint64_t before = atomicAdd(reinterpret_cast<unsigned long long *>(place), value);
  if (before == ~0ull) // never
    __builtin_amdgcn_s_dcache_inv();
}

/// Adds a lane to a finding.
__device__ inline void note(uint32_t site, uint32_t name, uint64_t address, const Lane &lane, uint32_t width) {
  const uint64_t key = static_cast<uint64_t>(name) << 32 | (site + 1);
  uint32_t at = (site * 31 + name * 7) % kFindings, turn = 0;
#pragma unroll 1
  for (; turn < kFindings; ++turn, at = (at + 1) % kFindings) {
    const uint64_t there = atomicCAS(reinterpret_cast<unsigned long long *>(&findings[at].key), 0ull, key);
    if (there == 0) {
      findings[at].address = address;
      findings[at].launch = launch.number;
      findings[at].group = lane.group_number();
      findings[at].place = lane.wave(width) << 6 | __lane_id();
      findings[at].lds = launch.lds;
    }
    if (there == 0 || there == key)
      break;
  }
  add(turn < kFindings ? &findings[at].lanes : &lost, 1);
}

/// A lane accesses another stretch than the last one of its site.
__device__ inline void look(uint64_t address, uint32_t site, uint32_t size, bool once, const Lane &lane, uint32_t width,
                            uint32_t column) {
  const uint32_t count = stretch_count;
  if (count == 0) // no stretches yet
    return;
  const uint32_t first = number_of(address, count), final = number_of(address + size - 1, count);
  const uint32_t outside = known.stretches[first].of[0].room == 0 ? first : final;
  if (known.stretches[outside].of[0].room) {
    const uint32_t place = offsetof(Known, stretches) + first * sizeof(Stretch) + column * sizeof(Bound);
    if (atomicExch(&known.last[site], place) != place)
      __builtin_amdgcn_s_dcache_inv(); // discard what was loaded before
  } else if (!once || __lane_id() == static_cast<uint32_t>(__builtin_ctzll(__builtin_amdgcn_read_exec()))) {
    note(site, names[outside], address, lane, width);
  }
}

} // namespace

/// An instruction accesses `size` bytes at `address`, in every active lane, or once if `once`.
///
/// @param at of its site in `known`, in bytes
/// @param column of the size in `Stretch::of`
/// @param width lanes of a wave
/// @param z blockIdx.z, or `kUnknown`
LUTHIER_HOOK_ANNOTATE access(uint64_t address, uint32_t at, uint32_t size, uint32_t column, bool once, uint32_t width,
                             uint32_t z) {
  const auto base = reinterpret_cast<uintptr_t>(&known);
  const uint32_t place = *reinterpret_cast<Constant<uint32_t> *>(base + at);
  const auto *usual = reinterpret_cast<Constant<Bound> *>(base + place);
  if (address - usual->begin < usual->room)
    return;
  look(address, (at - offsetof(Known, last)) / 4, size, once,
       {{blockIdx.x, blockIdx.y, z}, {threadIdx.x, threadIdx.y, threadIdx.z}}, width, column);
}

/// An LDS instruction accesses bytes at `offset`, in every active lane.
LUTHIER_HOOK_ANNOTATE access_lds(uint32_t offset, uint32_t site, uint32_t column, uint32_t width, uint32_t z) {
  if (offset < *reinterpret_cast<Constant<uint32_t> *>(reinterpret_cast<uintptr_t>(&launch.room[column])))
    return;
  if (stretch_count)
    note(site, offset >> 31 ? kBeforeLds : kBehindLds, offset,
         {{blockIdx.x, blockIdx.y, z}, {threadIdx.x, threadIdx.y, threadIdx.z}}, width);
}

namespace {

/// Loads bounds of adjacent slots into adjacent registers.
template <uint32_t Count> __device__ inline void hold(uint32_t slot, uint32_t first) {
  const auto *bounds = reinterpret_cast<Constant<uint64_t> *>(reinterpret_cast<uintptr_t>(&held[slot]));
#pragma unroll
  for (uint32_t at = 0; at < 2 * Count; ++at)
    luthier::writeReg<uint64_t>(first + 2 * at, bounds[at]);
}

} // namespace

/// A kernel begins: loads bounds into registers from `first` on.
LUTHIER_HOOK_ANNOTATE hold_1(uint32_t slot, uint32_t first) { hold<1>(slot, first); }
LUTHIER_HOOK_ANNOTATE hold_2(uint32_t slot, uint32_t first) { hold<2>(slot, first); }
LUTHIER_HOOK_ANNOTATE hold_3(uint32_t slot, uint32_t first) { hold<3>(slot, first); }
LUTHIER_HOOK_ANNOTATE hold_4(uint32_t slot, uint32_t first) { hold<4>(slot, first); }

/// The same for a limit.
LUTHIER_HOOK_ANNOTATE hold_limit(uint32_t slot, uint32_t first) {
  const auto *bounds = reinterpret_cast<Constant<uint64_t> *>(reinterpret_cast<uintptr_t>(&held[slot]));
  luthier::writeReg<uint32_t>(first, static_cast<uint32_t>(bounds[1]));
}
