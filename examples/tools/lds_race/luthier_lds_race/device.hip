// Device side of the LDS race check: the last accesses to each piece of a work-group's LDS, and their barriers.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
#include <luthier/waves.h>

MARK_LUTHIER_DEVICE_MODULE

namespace {

constexpr uint32_t kGroups = 32, kCells = 16384, kPairs = 4096;
constexpr uint32_t kEpochs = (1 << 17) - 4, kLaunches = (1 << 22) - 1;

/// Waves of a work-group: the number still to start in this launch and the launch number, then for each wave its launch
/// number and the barriers that it has passed (two steps each).
struct Group {
  uint64_t launch;   // waves to start | launch << 32
  uint64_t wave[32]; // steps | launch << 32
};

/// Two racing instructions: their sites, the number of races, and the first one.
struct Pair {
  uint64_t sites; // 1 + earlier + later << 14; 0: free
  uint64_t times;
  uint32_t offset, group;
  uint32_t earlier, later; // wave << 6 | lane
};

/// An access: launch << 42 | steps << 25 | site << 11 | wave << 6 | lane; 0: none.
using Access = uint64_t;

enum Kind { Read, Write, Atomic };

/// For each piece of a work-group's LDS: the last writer; the last reader, and the last one of another wave; the same
/// for atomic operations. They are separate, since most kernels do not need all of them.
struct Shadow {
  Access writer[kCells];
  Access others[2][kCells][2];
};

} // namespace

__device__ Group groups[kGroups];
__device__ Shadow shadow[kGroups];
__device__ Pair pairs[kPairs];

/// Watched waves; unwatched waves; barriers that waves reached, and those with an active lane; lanes with an access
/// beyond the shadow; races that were not recorded for lack of room; waves after too many launches or barriers.
__device__ uint64_t watched = 0, unwatched = 0, barriers = 0, passed = 0, beyond = 0, lost = 0, worn = 0;

namespace {

template <typename T> __device__ inline T get(T *place) {
  return __hip_atomic_load(place, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> __device__ inline void put(T *place, T value) {
  __hip_atomic_store(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> __device__ inline T swap(T *place, T value) {
  return __hip_atomic_exchange(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> __device__ inline bool replace(T *place, T &old, T value) {
  return __hip_atomic_compare_exchange_strong(place, &old, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                              __HIP_MEMORY_SCOPE_AGENT);
}
__device__ inline void add(uint64_t *place, uint64_t value) {
  __hip_atomic_fetch_add(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

/// Returns the work-group's number in the launch.
__device__ inline uint32_t group_number(uint32_t x, uint32_t y, uint32_t z) {
  if ((y | z) == 0)
    return x;
  const luthier::DispatchPacket &launch = luthier::dispatchPacket();
  const uint32_t wide = (launch.grid[0] - 1) / launch.size[0] + 1, high = (launch.grid[1] - 1) / launch.size[1] + 1;
  return x + wide * (y + high * z);
}

/// Returns a uniform number, loaded by lanes, as a scalar.
__device__ inline uint64_t uniform(uint64_t value) {
  const uint32_t high = __builtin_amdgcn_readfirstlane(static_cast<uint32_t>(value >> 32));
  return static_cast<uint64_t>(high) << 32 | __builtin_amdgcn_readfirstlane(static_cast<uint32_t>(value));
}

/// Returns whether two accesses of one work-group are unordered: in the same interval between two barriers. A barrier
/// is two steps, since an access between the two halves of a split one (signal, wait) meets those on both sides. There
/// are fewer steps than their bits can count, so steps of two launches differ by more than one, as does `Access` 0 from
/// any.
__device__ inline bool meet(Access one, Access other) { return (one >> 25) - (other >> 25) + 1 <= 2; }

__device__ inline void race(Access earlier, Access later, uint32_t offset, uint32_t group) {
  const uint32_t first = earlier >> 11 & 0x3fff, second = later >> 11 & 0x3fff;
  const uint64_t sites = 1 + first + (static_cast<uint64_t>(second) << 14);
  uint32_t at = (first * 31 + second * 7) % kPairs;
  for (uint32_t turn = 0; turn < kPairs; ++turn, at = (at + 1) % kPairs) {
    uint64_t there = 0;
    const bool is_new = replace(&pairs[at].sites, there, sites);
    if (is_new) {
      pairs[at].offset = offset;
      pairs[at].group = group;
      pairs[at].earlier = earlier & 0x7ff;
      pairs[at].later = later & 0x7ff;
    }
    if (is_new || there == sites) {
      add(&pairs[at].times, 1);
      return;
    }
  }
  add(&lost, 1);
}

/// A lane accesses `size` bytes at `offset`.
///
/// @param shift cells have 1 << shift bytes
/// @param kinds accesses of the kernel, a bit for each `Kind`
/// @param lanes whether lanes of one wave race, too
__device__ inline void look(uint32_t offset, uint32_t site, uint32_t size, uint32_t shift, uint32_t kind,
                            uint32_t kinds, bool lanes, uint32_t group, uint32_t window, uint32_t wave) {
  if (window >= kGroups)
    return;
  const uint64_t now = uniform(get(&groups[window].wave[wave]));
  const uint64_t launch = now >> 32, steps = now & 0xffffffff;
  if (launch == 0)
    return; // too many launches or barriers: counted when the wave started
  if (steps > kEpochs) {
    add(&worn, 1);
    return;
  }
  const Access mine = launch << 42 | steps << 25 | static_cast<uint64_t>(site) << 11 | wave << 6 | __lane_id();
  const uint32_t same = lanes ? 0x7ff : 0x7c0;
  const auto races = [&](Access other) { return meet(other, mine) && ((other ^ mine) & same); };
  Shadow &cells = shadow[window];
  const uint32_t last = (offset + size - 1) >> shift;
  for (uint32_t at = offset >> shift; at <= last; ++at) {
    if (at >= kCells) {
      add(&beyond, 1);
      return;
    }
    // Write this access first and read the others second, so that one of two simultaneous accesses sees the other.
    Access writer = 0, readers[2] = {}, atomics[2] = {};
    if (kind == Write) {
      writer = swap(&cells.writer[at], mine);
    } else {
      Access *kept = cells.others[kind == Atomic][at];
      const Access old = swap(&kept[0], mine);
      if (races(old))
        put(&kept[1], old);
    }
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
    if (kind != Write && (kinds >> Write & 1))
      writer = get(&cells.writer[at]);
    if (kind != Read && (kinds >> Read & 1)) {
      readers[0] = get(&cells.others[0][at][0]);
      readers[1] = get(&cells.others[0][at][1]);
    }
    if (kind != Atomic && (kinds >> Atomic & 1)) {
      atomics[0] = get(&cells.others[1][at][0]);
      atomics[1] = get(&cells.others[1][at][1]);
    }
    // One lane at a time, in a loop that is rarely entered, since the code for a race is long.
#pragma unroll 1
    for (;;) {
      Access *const each[] = {&writer, &readers[0], &readers[1], &atomics[0], &atomics[1]};
      Access one = 0;
      for (Access *other : each)
        one = races(*other) ? *other : one;
      if (one == 0)
        break;
      race(one, mine, at << shift, group);
      for (Access *other : each)
        *other = *other == one ? 0 : *other;
    }
  }
}

} // namespace

/// A wave starts. The first `kGroups` work-groups from number `first` on are watched.
///
/// @param width lanes of a wave
/// @param z blockIdx.z; 0 if it is not available (`has_z`), and then work-groups of deeper grids are not watched
LUTHIER_HOOK_ANNOTATE starts(uint32_t first, uint32_t width, uint32_t z, bool has_z) {
  const uint32_t group = group_number(blockIdx.x, blockIdx.y, z), window = group - first;
  const uint32_t wave = luthier::waveNumber(threadIdx.x, threadIdx.y, threadIdx.z, width);
  if (__lane_id() != static_cast<uint32_t>(__builtin_ctzll(__builtin_amdgcn_read_exec())))
    return;
  const luthier::DispatchPacket &size = luthier::dispatchPacket();
  if (window >= kGroups || (!has_z && size.grid[2] > size.size[2])) {
    if (window < kGroups)
      put(&groups[window].wave[wave], uint64_t(0));
    add(&unwatched, 1);
    return;
  }
  // A work-group at the grid's end may have fewer work-items.
  uint32_t items = 1;
  const uint32_t ids[] = {blockIdx.x, blockIdx.y, z};
  for (int axis = 0; axis < 3; ++axis) {
    const uint32_t left = size.grid[axis] - ids[axis] * size.size[axis];
    items *= left < size.size[axis] ? left : size.size[axis];
  }
  const uint32_t waves = (items + width - 1) / width;
  uint64_t old = get(&groups[window].launch), fresh;
  do
    fresh = (old & 0xffffffff) ? old - 1 : ((old >> 32) + 1) << 32 | (waves - 1);
  while (!replace(&groups[window].launch, old, fresh));
  const uint64_t launch = fresh >> 32;
  put(&groups[window].wave[wave], launch > kLaunches ? 0 : launch << 32);
  add(launch > kLaunches ? &worn : &watched, 1);
}

/// A wave reaches a barrier, or half of one.
LUTHIER_HOOK_ANNOTATE barrier(uint32_t steps, uint32_t first, uint32_t width, uint32_t z) {
  luthier::sAtomicAdd<uint64_t>(&barriers, 1);
  const uint32_t window = group_number(blockIdx.x, blockIdx.y, z) - first;
  const uint32_t wave = luthier::waveNumber(threadIdx.x, threadIdx.y, threadIdx.z, width);
  if (__lane_id() != static_cast<uint32_t>(__builtin_ctzll(__builtin_amdgcn_read_exec())))
    return;
  add(&passed, 1);
  if (window < kGroups && get(&groups[window].wave[wave]))
    add(&groups[window].wave[wave], steps);
}

/// An LDS instruction accesses `size` bytes at `offset`, in every active lane: `look`.
///
/// @param site its number
LUTHIER_HOOK_ANNOTATE access(uint32_t offset, uint32_t site, uint32_t size, uint32_t shift, uint32_t kind,
                             uint32_t kinds, bool lanes, uint32_t first, uint32_t width, uint32_t z) {
  const uint32_t group = group_number(blockIdx.x, blockIdx.y, z);
  const uint32_t wave = luthier::waveNumber(threadIdx.x, threadIdx.y, threadIdx.z, width);
  look(offset, site, size, shift, kind, kinds, lanes, group, group - first, wave);
}

/// The same for a flat instruction with an address in LDS.
LUTHIER_HOOK_ANNOTATE access_flat(uint64_t address, uint32_t site, uint32_t size, uint32_t shift, uint32_t kind,
                                  uint32_t kinds, bool lanes, uint32_t first, uint32_t width, uint32_t z) {
  const uint32_t group = group_number(blockIdx.x, blockIdx.y, z);
  const uint32_t wave = luthier::waveNumber(threadIdx.x, threadIdx.y, threadIdx.z, width);
  if (!__builtin_amdgcn_is_shared((const __attribute__((address_space(0))) void *)address))
    return;
  look(static_cast<uint32_t>(address), site, size, shift, kind, kinds, lanes, group, group - first, wave);
}
