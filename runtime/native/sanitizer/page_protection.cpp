// Everything that the handler of SIGSEGV uses is static, and without memory of its own: it may interrupt allocators.
#include "page_protection.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>
#include <sched.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>
#include <utility>

#include "sanitizer.h"

namespace luthier {

namespace {

struct Slot {
  uint64_t operation = 0; // 0: free
  uint64_t begin = 0, end = 0;
  bool is_readable = false, is_lifted = false;
  bool has(uint64_t address) const { return operation && address >= begin && address < end; }
};

// No thread accesses protected memory, nor waits for another, while it holds this lock.
class SpinLock {
public:
  void lock() {
    while (flag_.test_and_set(std::memory_order_acquire))
      sched_yield();
  }
  void unlock() { flag_.clear(std::memory_order_release); }

private:
  std::atomic_flag flag_;
};

constexpr size_t kSlots = 4096, kAccesses = 256, kReleased = 256;

SpinLock spin;
std::array<Slot, kSlots> slots;
size_t used = 0; // slots before this one may be in use
std::atomic<size_t> protections = 0;
std::array<PageProtection::Access, kAccesses> accesses;
std::atomic<size_t> accessed = 0;
// Pages that were released a short time ago: another thread may have met their protection before.
std::array<Slot, kReleased> released;
size_t next_released = 0;
struct sigaction previous{};
const void *restorer = nullptr; // to which a handler that the kernel calls returns

void set(const Slot &slot, int protection) {
  mprotect(reinterpret_cast<void *>(slot.begin), slot.end - slot.begin, protection); // NOLINT(*-no-int-to-ptr)
}

// Lift the protection of all slots that have bytes of a range and forbid the access. Return the last such operation.
uint64_t lift_slots(uint64_t begin, uint64_t end, bool writes) {
  uint64_t operation = 0;
  for (size_t at = 0; at < used; ++at) {
    Slot &slot = slots[at];
    if (!slot.operation || slot.is_lifted || slot.begin >= end || slot.end <= begin || (slot.is_readable && !writes))
      continue;
    set(slot, PROT_READ | PROT_WRITE);
    slot.is_lifted = true;
    operation = slot.operation;
  }
  return operation;
}

// Return whether an address was protected a short time ago.
bool was_protected(uint64_t address) {
  for (size_t at = 0; at < used; ++at)
    if (slots[at].has(address))
      return true;
  for (const Slot &slot : released)
    if (slot.has(address))
      return true;
  return false;
}

struct Walk {
  PageProtection::Access *access;
  uint64_t fault;
  bool is_behind; // the frames of the handler
};

_Unwind_Reason_Code step(_Unwind_Context *context, void *data) {
  auto &walk = *static_cast<Walk *>(data);
  const uint64_t address = _Unwind_GetIP(context);
  const bool is_fault = address == walk.fault;
  walk.is_behind |= is_fault;
  if (!walk.is_behind || !address)
    return _URC_NO_REASON;
  auto &[operation, place, writes, count, returns] = *walk.access;
  returns[count++] = reinterpret_cast<const void *>(address + is_fault); // NOLINT(*-no-int-to-ptr)
  return count < returns.size() ? _URC_NO_REASON : _URC_END_OF_STACK;
}

// Let the access of a fault take place, and keep it. Return whether the protection was the cause.
bool resolve(uint64_t address, bool writes, uint64_t instruction) {
  thread_local uint64_t last = 0;
  thread_local unsigned repeats = 0;
  std::lock_guard lock(spin);
  if (const uint64_t operation = lift_slots(address, address + 1, writes)) {
    if (!inside && accessed < accesses.size()) {
      PageProtection::Access &access = accesses[accessed++];
      access.operation = operation;
      access.address = address;
      access.writes = writes;
      access.count = 0;
      Walk walk{&access, instruction, false};
      _Unwind_Backtrace(step, &walk);
    }
    return true;
  }
  constexpr unsigned kMostRepeats = 16; // else the program has protected the page itself
  repeats = last == address ? repeats + 1 : 0;
  last = address;
  return repeats < kMostRepeats && was_protected(address);
}

// Call the handler that was there before, which may not return. `is_back`: that handler has passed the signal back.
void pass_on(int signal, siginfo_t *info, void *context, bool is_back) {
  const struct sigaction handler = previous;
  if (is_back || handler.sa_handler == SIG_DFL || handler.sa_handler == SIG_IGN) {
    struct sigaction end{};
    end.sa_handler = SIG_DFL; // the instruction faults again
    sigaction(signal, &end, nullptr);
  } else if (handler.sa_flags & SA_SIGINFO) {
    handler.sa_sigaction(signal, info, context);
  } else {
    handler.sa_handler(signal);
  }
}

void on_fault(int signal, siginfo_t *info, void *context) {
  constexpr long long kWrite = 2; // of the page fault's error code
  const auto &registers = static_cast<const ucontext_t *>(context)->uc_mcontext.gregs;
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  if (info->si_code != SEGV_ACCERR ||
      !resolve(address, registers[REG_ERR] & kWrite, static_cast<uint64_t>(registers[REG_RIP])))
    pass_on(signal, info, context, __builtin_return_address(0) != restorer);
}

// Put the handler before the program's, which may have come since the last time.
void handle_faults() {
  struct sigaction now{};
  if (sigaction(SIGSEGV, nullptr, &now) || (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault))
    return;
  previous = now;
  struct sigaction handler{};
  handler.sa_sigaction = on_fault;
  handler.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER;
  sigaction(SIGSEGV, &handler, nullptr);
  sigaction(SIGSEGV, nullptr, &now);
  restorer = reinterpret_cast<const void *>(now.sa_restorer);
}

// Load what the unwinder needs: it may not allocate memory in the handler.
void prepare_unwinder() {
  static const bool is_prepared = [] {
    _Unwind_Backtrace([](_Unwind_Context *, void *) { return _URC_END_OF_STACK; }, nullptr);
    return true;
  }();
  static_cast<void>(is_prepared);
}

} // namespace

bool PageProtection::protect(uint64_t operation, uint64_t begin, uint64_t size, bool is_readable) {
  prepare_unwinder();
  handle_faults();
  std::lock_guard lock(spin);
  size_t at = 0;
  while (at < used && slots[at].operation)
    ++at;
  if (at == slots.size())
    return false;
  used = std::max(used, at + 1);
  slots[at] = {operation, begin, begin + size, is_readable, false};
  ++protections;
  set(slots[at], is_readable ? PROT_READ : PROT_NONE);
  return true;
}

void PageProtection::release(uint64_t operation) {
  std::lock_guard lock(spin);
  for (size_t at = 0; at < used; ++at) {
    Slot &slot = slots[at];
    if (slot.operation != operation)
      continue;
    if (!slot.is_lifted)
      set(slot, PROT_READ | PROT_WRITE);
    const Slot before = std::exchange(slot, {});
    --protections;
    released[next_released++ % released.size()] = before;
    for (size_t each = 0; each < used; ++each)
      if (const Slot &other = slots[each];
          other.operation && !other.is_lifted && other.begin < before.end && before.begin < other.end)
        set(other, other.is_readable ? PROT_READ : PROT_NONE);
  }
  while (used && !slots[used - 1].operation)
    --used;
}

uint64_t PageProtection::lift(uint64_t address, uint64_t size, bool writes) {
  std::lock_guard lock(spin);
  return lift_slots(address, address + size, writes);
}

std::vector<PageProtection::Access> PageProtection::take() {
  std::vector<Access> all;
  if (!accessed.load(std::memory_order_acquire))
    return all;
  all.reserve(kAccesses);
  std::lock_guard lock(spin);
  all.assign(accesses.begin(), accesses.begin() + static_cast<std::ptrdiff_t>(accessed.load()));
  accessed = 0;
  return all;
}

bool PageProtection::is_used() { return protections.load(std::memory_order_relaxed); }

} // namespace luthier
