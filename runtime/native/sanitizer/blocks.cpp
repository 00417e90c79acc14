#include "blocks.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "agreement.h"
#include "listeners.h"
#include "sanitizer.h"

namespace luthier {

namespace {

using wire::FindingKind;

constexpr size_t kQuarantine = size_t{256} << 20;

struct State {
  std::mutex mutex;
  std::map<void *, Block> live, freed;
  std::deque<void *> order; // of what is freed, the oldest first
  size_t kept = 0;          // bytes of it
};

State &state() {
  static State *const made = new State; // never destroyed: programs free memory while they end
  return *made;
}

uint64_t number(const void *address) { return reinterpret_cast<uint64_t>(address); }

// Release kept memory to its runtime.
void release(void *address, const Block &block) {
  listeners::forget(number(address));
  switch (block.kind) {
  case Kind::kHost:
    next<int(void *)>("hipHostFree")(address);
    break;
  case Kind::kHsa:
    next<int(void *)>("hsa_memory_free", kHsaLibrary)(address);
    break;
  case Kind::kSvm:
    next<void(uint64_t, void *)>("clSVMFree", kOpenClLibrary)(block.owner, address);
    next<int(uint64_t)>("clReleaseContext", kOpenClLibrary)(block.owner);
    break;
  case Kind::kOpenMp:
    next<void(void *, int)>("omp_target_free", kOpenMpLibrary)(address, static_cast<int>(block.owner));
    break;
  default:
    next<int(void *)>("hipFree")(address);
  }
}

void complain(FindingKind kind, void *address, const void *base, const Block &block, CallTrace calls) {
  listeners::complain(static_cast<uint64_t>(kind), number(address), number(base), block.size, calls);
}

void complain_of_leak(void *address, const Block &block) {
  if (block.is_programs)
    complain(FindingKind::kLeak, address, address, block, block.calls);
}

// Reports what is live when the process ends.
struct AtExit {
  ~AtExit() {
    State &all = state();
    std::lock_guard lock(all.mutex);
    for (const auto &[address, block] : all.live)
      complain_of_leak(address, block);
  }
} at_exit;

} // namespace

CallTrace calls_here() {
  static std::atomic<bool> is_reported = false;
  const CallTrace calls = stack_here();
  if (!calls && !is_reported.exchange(true))
    std::fprintf(stderr, "luthier: the process has allocated and freed memory from more than 65,536 stacks of calls: "
                         "findings have no stacks for later ones\n");
  return calls;
}

void note(void *address, const Block &block, size_t reserved) {
  State &all = state();
  std::lock_guard lock(all.mutex);
  all.freed.erase(address);
  all.live[address] = block;
  listeners::allocated(number(address), block.size, reserved, block.calls);
}

void note_front(void *page) { listeners::allocated(number(page), 0, kPage, {}); }

bool is_wrong(void *address) {
  State &all = state();
  FindingKind kind = FindingKind::kDoubleFree;
  void *base = address;
  Block block{};
  {
    std::lock_guard lock(all.mutex);
    if (const auto entry = all.freed.find(address); entry != all.freed.end()) {
      block = entry->second;
    } else {
      auto after = all.live.upper_bound(address);
      if (after == all.live.begin())
        return false;
      std::tie(base, block) = *--after;
      if (number(address) - number(base) >= block.size)
        return false;
      kind = FindingKind::kInvalidFree;
    }
  }
  complain(kind, address, base, block, calls_here());
  return true;
}

bool free_later(void *address) {
  Inside now;
  State &all = state();
  std::vector<std::pair<void *, Block>> old;
  const CallTrace calls = calls_here();
  {
    std::lock_guard lock(all.mutex);
    const auto entry = all.live.find(address);
    if (entry == all.live.end())
      return false;
    const Block block = entry->second;
    all.live.erase(entry);
    listeners::freed(number(address), calls);
    all.freed[address] = block;
    all.order.push_back(address);
    all.kept += block.size;
    while (all.kept > kQuarantine && !all.order.empty()) {
      const auto oldest = all.freed.find(all.order.front());
      all.order.pop_front();
      if (oldest == all.freed.end())
        continue;
      all.kept -= oldest->second.size;
      old.emplace_back(*oldest);
      all.freed.erase(oldest);
    }
  }
  for (const auto &[each, block] : old)
    release(each, block);
  return true;
}

void forget_live(void *address) {
  State &all = state();
  std::lock_guard lock(all.mutex);
  if (all.live.erase(address))
    listeners::forget(number(address));
}

void forget_all(bool (*is_gone)(Kind), bool leaks) {
  State &all = state();
  std::lock_guard lock(all.mutex);
  for (auto *blocks : {&all.live, &all.freed})
    for (auto each = blocks->begin(); each != blocks->end();) {
      const auto &[address, block] = *each;
      if (!is_gone(block.kind)) {
        ++each;
        continue;
      }
      if (leaks && blocks == &all.live)
        complain_of_leak(address, block);
      if (blocks == &all.freed)
        all.kept -= block.size;
      listeners::forget(number(address));
      each = blocks->erase(each);
    }
}

std::optional<Known> known_around(const void *address) {
  State &all = state();
  void *const wanted = const_cast<void *>(address);
  std::lock_guard lock(all.mutex);
  for (const auto *blocks : {&all.live, &all.freed}) {
    const auto after = blocks->upper_bound(wanted);
    if (after == blocks->begin())
      continue;
    const auto &[base, block] = *std::prev(after);
    if (number(wanted) - number(base) < block.size)
      return Known{number(base),
                   block.size,
                   blocks == &all.freed,
                   block.kind == Kind::kDevice || block.kind == Kind::kAsync,
                   block.kind == Kind::kHost || block.kind == Kind::kManaged,
                   true};
  }
  return std::nullopt;
}

} // namespace luthier
