// HIP's functions that give memory and take it back, before HIP's own: they say to the virtual device and to tools
// what the program asked for, to the byte.
//
// Behind each allocation there is room that is nobody's, so that what is read before the next one is outside of any.
// Memory that is given back stays for a while, so that who still uses it is found.
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "agreement.h"
#include "listeners.h"
#include "sanitizer.h"

namespace {

using namespace luthier;
using luthier::wire::Sight;

constexpr size_t kZone = 256, kPage = 4096; // bytes behind an allocation; granule of what the driver gives
constexpr size_t kQuarantine = size_t{256} << 20;

enum class Kind { kDevice, kManaged, kHost, kAsync };

struct Block {
  size_t size;
  Kind kind;
};

struct State {
  std::mutex mutex;
  std::map<void *, Block> live, freed;
  std::deque<void *> order; // of what is freed, the oldest first
  size_t kept = 0;          // bytes of it
  std::set<int> begun;      // devices whose memory begins with a page that is nobody's
};

State &state() {
  static State *const made = new State; // never destroyed: programs free memory while they end
  return *made;
}

// Return whether nobody has written to what HIP gives of this kind.
bool is_fresh(Kind kind) { return kind == Kind::kDevice || kind == Kind::kManaged; }

void note(void *address, size_t size, Kind kind) {
  State &all = state();
  std::lock_guard lock(all.mutex);
  all.freed.erase(address);
  all.live[address] = {size, kind};
  const size_t reserved = size + kZone;
  // Pools give pieces of pages.
  listeners::allocated(reinterpret_cast<uint64_t>(address), size,
                       kind == Kind::kAsync ? reserved : (reserved + kPage - 1) / kPage * kPage);
  if (is_fresh(kind) && luthier_fresh)
    luthier_fresh(reinterpret_cast<uint64_t>(address), size);
}

// Has a page that is nobody's in front of the first memory of a device, where otherwise memory of ROCr's own may lie,
// which nothing tells from the program's. What comes later has the room behind others in front.
void begin_device() {
  int device = 0;
  if (next<int(int *)>("hipGetDevice")(&device) != kSuccess)
    return;
  {
    State &all = state();
    std::lock_guard lock(all.mutex);
    if (!all.begun.insert(device).second)
      return;
  }
  void *page = nullptr;
  if (next<int(void **, size_t)>("hipMalloc")(&page, kPage) == kSuccess && page)
    listeners::allocated(reinterpret_cast<uint64_t>(page), 0, kPage);
}

// Has memory made that is larger than the program asks for.
template <typename Make> int allocate(void **address, size_t size, Kind kind, Make make) {
  if (inside || !listeners::any() || !address || !size || size > SIZE_MAX - kZone)
    return make(size);
  Inside now;
  if (is_fresh(kind))
    begin_device();
  const int result = make(size + kZone);
  if (result == kSuccess && *address)
    note(*address, size, kind);
  return result;
}

// Gives memory back to HIP that was kept.
int release(void *address, Kind kind) {
  listeners::forget(reinterpret_cast<uint64_t>(address));
  return kind == Kind::kHost ? next<int(void *)>("hipHostFree")(address) : next<int(void *)>("hipFree")(address);
}

// Keeps memory that the program gives back, and gives others back to HIP where there is too much of it.
int free_later(void *address) {
  Inside now;
  State &all = state();
  std::vector<std::pair<void *, Kind>> old;
  {
    std::lock_guard lock(all.mutex);
    const auto found = all.live.find(address);
    if (found == all.live.end())
      return -1;
    const Block block = found->second;
    all.live.erase(found);
    listeners::freed(reinterpret_cast<uint64_t>(address));
    all.freed[address] = block;
    all.order.push_back(address);
    all.kept += block.size;
    while (all.kept > kQuarantine && !all.order.empty()) {
      const auto oldest = all.freed.find(all.order.front());
      all.order.pop_front();
      if (oldest == all.freed.end())
        continue;
      all.kept -= oldest->second.size;
      old.emplace_back(oldest->first, oldest->second.kind);
      all.freed.erase(oldest);
    }
  }
  for (auto [one, its] : old)
    release(one, its);
  return kSuccess;
}

void complain(Sight sight, void *address, uint64_t base, uint64_t size) {
  listeners::complain(static_cast<uint64_t>(sight), reinterpret_cast<uint64_t>(address), base, size);
}

// Return what is wrong with memory that is given back and is none of `live`; false: nothing that is known here.
bool is_wrong(void *address) {
  State &all = state();
  std::lock_guard lock(all.mutex);
  if (const auto found = all.freed.find(address); found != all.freed.end()) {
    complain(Sight::kDoubleFree, address, reinterpret_cast<uint64_t>(address), found->second.size);
    return true;
  }
  auto after = all.live.upper_bound(address);
  if (after == all.live.begin())
    return false;
  const auto &[base, block] = *--after;
  if (static_cast<char *>(address) - static_cast<char *>(base) >= static_cast<ptrdiff_t>(block.size))
    return false;
  complain(Sight::kInvalidFree, address, reinterpret_cast<uint64_t>(base), block.size);
  return true;
}

// Tells of the result of a call of a program's.
int told(const char *function, const void *site, int result) {
  note_result(function, result, site);
  return result;
}

int give_back(void *address, const char *function) {
  const auto own = [&] { return next<int(void *)>(function)(address); };
  if (inside || !listeners::any() || !address)
    return own();
  // Kernels that use it may still run: HIP waits for them.
  {
    Inside now;
    next<int()>("hipDeviceSynchronize")();
  }
  look_at_all_copies();
  if (free_later(address) == kSuccess)
    return kSuccess;
  return is_wrong(address) ? kInvalidValue : own();
}

// What is live when the process ends.
struct AtExit {
  ~AtExit() {
    State &all = state();
    std::lock_guard lock(all.mutex);
    for (const auto &[address, block] : all.live)
      complain(Sight::kLeak, address, reinterpret_cast<uint64_t>(address), block.size);
  }
} at_exit;

} // namespace

std::optional<Known> luthier::known_around(const void *address) {
  State &all = state();
  void *const wanted = const_cast<void *>(address);
  std::lock_guard lock(all.mutex);
  for (const auto *blocks : {&all.live, &all.freed}) {
    const auto after = blocks->upper_bound(wanted);
    if (after == blocks->begin())
      continue;
    const auto &[base, block] = *std::prev(after);
    if (static_cast<uint64_t>(static_cast<char *>(wanted) - static_cast<char *>(base)) < block.size)
      return Known{reinterpret_cast<uint64_t>(base), block.size, blocks == &all.freed,
                   block.kind == Kind::kDevice || block.kind == Kind::kAsync};
  }
  return std::nullopt;
}

extern "C" {

int hipMalloc(void **address, size_t size) {
  return told("hipMalloc", __builtin_return_address(0), allocate(address, size, Kind::kDevice, [&](size_t room) {
                return next<int(void **, size_t)>("hipMalloc")(address, room);
              }));
}

int hipExtMallocWithFlags(void **address, size_t size, unsigned flags) {
  return told("hipExtMallocWithFlags", __builtin_return_address(0),
              allocate(address, size, Kind::kDevice, [&](size_t room) {
                return next<int(void **, size_t, unsigned)>("hipExtMallocWithFlags")(address, room, flags);
              }));
}

int hipMallocManaged(void **address, size_t size, unsigned flags) {
  return told("hipMallocManaged", __builtin_return_address(0),
              allocate(address, size, Kind::kManaged, [&](size_t room) {
                return next<int(void **, size_t, unsigned)>("hipMallocManaged")(address, room, flags);
              }));
}

int hipHostMalloc(void **address, size_t size, unsigned flags) {
  return told("hipHostMalloc", __builtin_return_address(0), allocate(address, size, Kind::kHost, [&](size_t room) {
                return next<int(void **, size_t, unsigned)>("hipHostMalloc")(address, room, flags);
              }));
}

int hipMallocHost(void **address, size_t size) {
  return told("hipMallocHost", __builtin_return_address(0), allocate(address, size, Kind::kHost, [&](size_t room) {
                return next<int(void **, size_t)>("hipMallocHost")(address, room);
              }));
}

int hipMallocAsync(void **address, size_t size, void *stream) {
  return told("hipMallocAsync", __builtin_return_address(0), allocate(address, size, Kind::kAsync, [&](size_t room) {
                return next<int(void **, size_t, void *)>("hipMallocAsync")(address, room, stream);
              }));
}

int hipFree(void *address) { return told("hipFree", __builtin_return_address(0), give_back(address, "hipFree")); }
int hipHostFree(void *address) {
  return told("hipHostFree", __builtin_return_address(0), give_back(address, "hipHostFree"));
}
int hipFreeHost(void *address) {
  return told("hipFreeHost", __builtin_return_address(0), give_back(address, "hipFreeHost"));
}

// What was asked for before in the stream may still use it: the stream's end is waited for.
int hipFreeAsync(void *address, void *stream) {
  if (!inside && listeners::any() && address) {
    {
      Inside now;
      next<int(void *)>("hipStreamSynchronize")(stream);
    }
    look_at_copies(stream);
    if (free_later(address) == kSuccess)
      return kSuccess;
    if (is_wrong(address))
      return kInvalidValue;
  }
  return next<int(void *, void *)>("hipFreeAsync")(address, stream);
}

// Takes all of the device's memory back.
int hipDeviceReset() {
  State &all = state();
  {
    std::lock_guard lock(all.mutex);
    for (auto *blocks : {&all.live, &all.freed})
      for (const auto &[address, block] : *blocks)
        listeners::forget(reinterpret_cast<uint64_t>(address));
    all.live.clear();
    all.freed.clear();
    all.begun.clear();
    all.order.clear();
    all.kept = 0;
  }
  return next<int()>("hipDeviceReset")();
}
}
