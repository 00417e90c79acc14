// Device side of the memory check: whether each access is in memory that the program has.
//
// The host divides all addresses into stretches, each forbidden or not. Most instructions access the same stretch each
// time: its place is remembered, and compared with first.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

namespace {

constexpr uint32_t kSites = 16384, kStretches = 16384, kFindings = 4096, kSizes = 8, kHeld = 1024;

/// Where addresses begin, and at how many of them an access of some size may begin: at none of what is forbidden.
struct alignas(16) Bound {
  uint64_t begin, room;
};

/// Addresses up to the next stretch's, for each size.
struct Stretch {
  Bound of[kSizes];
};

/// All that most accesses need, at one address: where each site finds what it has met last, in bytes from here on,
/// which is nothing at first; and all stretches in the order of their addresses, the first from 0 on.
struct Known {
  Bound nothing;
  uint32_t last[kSites];
  alignas(16) Stretch stretches[kStretches];
};

/// What lanes did at one site to one thing: the first of them, and how many did.
struct Finding {
  uint64_t key; // 1 + site | name << 32; 0: free
  uint64_t lanes, address;
  uint32_t launch, group, place; // wave << 6 | lane
  uint32_t lds;                  // bytes that the work-group has
};

/// A launch: its number, its work-groups in three dimensions, the work-items of one in two, its bytes of LDS, and at
/// how many of them an access of each size may begin.
struct Launch {
  uint32_t number, groups[3], items[2], lds, room[kSizes];
};

constexpr uint32_t kUnknown = ~0u;

/// Names of what is no stretch: outside of LDS, in front of it and behind it.
enum : uint32_t { kBeforeLds = 0, kBehindLds = 1 };

template <typename T> using Constant = const __attribute__((address_space(4))) T;

} // namespace

__device__ Known known;
/// By the host before each launch, as the stretches are: what each is called in findings, how many there are, and the
/// launch.
__device__ uint32_t names[kStretches];
__device__ uint32_t stretch_count = 0;
__device__ Launch launch;

/// What kernels hold in registers: bounds of addresses, or a limit in the second one.
__device__ uint64_t held[kHeld][2];

__device__ Finding findings[kFindings];
/// Lanes for whose findings there was no room.
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

/// Where a lane is, in three dimensions.
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

/// Adds to a number, and waits until that is done. So nothing is on its way where the rare way through a hook meets the
/// usual one, which then has no wait for it.
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

/// A lane accesses what is not the stretch that its site has met last.
__device__ inline void look(uint64_t address, uint32_t site, uint32_t size, bool once, const Lane &lane, uint32_t width,
                            uint32_t column) {
  const uint32_t count = stretch_count;
  if (count == 0) // nothing is known
    return;
  const uint32_t first = number_of(address, count), final = number_of(address + size - 1, count);
  const uint32_t outside = known.stretches[first].of[0].room == 0 ? first : final;
  if (known.stretches[outside].of[0].room) {
    const uint32_t place = offsetof(Known, stretches) + first * sizeof(Stretch) + column * sizeof(Bound);
    if (atomicExch(&known.last[site], place) != place)
      __builtin_amdgcn_s_dcache_inv(); // what was loaded of it before is forgotten
  } else if (!once || __lane_id() == static_cast<uint32_t>(__builtin_ctzll(__builtin_amdgcn_read_exec()))) {
    note(site, names[outside], address, lane, width);
  }
}

} // namespace

/// An instruction accesses `size` bytes at `address`, in every active lane, or once where `once`.
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

/// Puts bounds of neighbouring slots into neighbouring registers.
template <uint32_t Count> __device__ inline void hold(uint32_t slot, uint32_t first) {
  const auto *bounds = reinterpret_cast<Constant<uint64_t> *>(reinterpret_cast<uintptr_t>(&held[slot]));
#pragma unroll
  for (uint32_t at = 0; at < 2 * Count; ++at)
    luthier::writeReg<uint64_t>(first + 2 * at, bounds[at]);
}

} // namespace

/// A kernel begins: registers from `first` on hold bounds.
LUTHIER_HOOK_ANNOTATE hold_1(uint32_t slot, uint32_t first) { hold<1>(slot, first); }
LUTHIER_HOOK_ANNOTATE hold_2(uint32_t slot, uint32_t first) { hold<2>(slot, first); }
LUTHIER_HOOK_ANNOTATE hold_3(uint32_t slot, uint32_t first) { hold<3>(slot, first); }
LUTHIER_HOOK_ANNOTATE hold_4(uint32_t slot, uint32_t first) { hold<4>(slot, first); }

/// The same of a limit.
LUTHIER_HOOK_ANNOTATE hold_limit(uint32_t slot, uint32_t first) {
  const auto *bounds = reinterpret_cast<Constant<uint64_t> *>(reinterpret_cast<uintptr_t>(&held[slot]));
  luthier::writeReg<uint32_t>(first, static_cast<uint32_t>(bounds[1]));
}
