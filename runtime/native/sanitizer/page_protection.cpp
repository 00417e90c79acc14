// Everything that the handler of SIGSEGV uses is static, and without memory of its own: it may interrupt allocators.
#include "page_protection.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
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

// No thread accesses protected memory, waits for another, or is interrupted by a handler while it holds this lock.
class SpinLock {
public:
  void lock() {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (flag_.test_and_set(std::memory_order_acquire))
      sched_yield();
    before_ = before;
  }
  void unlock() {
    const sigset_t before = before_;
    flag_.clear(std::memory_order_release);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

private:
  std::atomic_flag flag_;
  sigset_t before_{}; // of the thread that holds it
};

constexpr size_t kSlots = 4096, kAccesses = 256, kReleased = 256;

SpinLock spin;
std::array<Slot, kSlots> slots;
size_t used = 0; // slots before this one may be in use
std::atomic<size_t> protections = 0;
std::array<PageProtection::Access, kAccesses> accesses;
std::atomic<size_t> accessed = 0;
std::atomic<bool> lost_protections = false, lost_accesses = false;
// Pages that were released a short time ago: another thread may have met their protection before.
std::array<Slot, kReleased> released;
size_t next_released = 0;
struct sigaction previous{};
const void *restorer = nullptr; // to which a handler that the kernel calls returns

// Set the protection of a slot's pages; return whether the system did.
bool set(const Slot &slot, int protection) {
  void *const begin = reinterpret_cast<void *>(slot.begin); // NOLINT(*-no-int-to-ptr)
  return mprotect(begin, slot.end - slot.begin, protection) == 0;
}

// Protect the pages again that slots in use have in common with one that no longer is.
void protect_common(const Slot &lifted) {
  for (size_t at = 0; at < used; ++at)
    if (const Slot &other = slots[at];
        other.operation && !other.is_lifted && other.begin < lifted.end && lifted.begin < other.end)
      set(other, other.is_readable ? PROT_READ : PROT_NONE);
}

// Lift the protection of all slots that have bytes of a range and forbid the access. Return the last such operation.
uint64_t lift_slots(uint64_t begin, uint64_t end, bool writes) {
  uint64_t operation = 0;
  for (size_t at = 0; at < used; ++at) {
    Slot &slot = slots[at];
    if (!slot.operation || slot.is_lifted || slot.begin >= end || slot.end <= begin || (slot.is_readable && !writes))
      continue;
    if (!set(slot, PROT_READ | PROT_WRITE))
      continue;
    slot.is_lifted = true;
    operation = slot.operation;
    protect_common(slot); // those that have the bytes, too, are lifted later in this loop
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
  uint64_t operation;
  {
    std::lock_guard lock(spin);
    operation = lift_slots(address, address + 1, writes);
  }
  if (operation) {
    if (inside)
      return true;
    PageProtection::Access access{operation, address, writes, 0, {}};
    Walk walk{&access, instruction, false};
    _Unwind_Backtrace(step, &walk); // without the lock: it may meet protected pages
    if (!access.count)
      access.returns[access.count++] = reinterpret_cast<const void *>(instruction + 1); // NOLINT(*-no-int-to-ptr)
    std::lock_guard lock(spin);
    if (accessed < accesses.size())
      accesses[accessed++] = access;
    else
      lost_accesses = true;
    return true;
  }
  std::lock_guard lock(spin);
  constexpr unsigned kMostRepeats = 16; // else the program has protected the page itself
  repeats = last == address ? repeats + 1 : 0;
  last = address;
  return repeats < kMostRepeats && was_protected(address);
}

// Call the handler that was there before, which may not return. `is_back`: that handler has passed the signal back.
void pass_on(int signal, siginfo_t *info, void *context, bool is_back) {
  const struct sigaction handler = previous;
  const bool is_sent = info->si_code <= 0; // by a process, not by an instruction that faults again
  if (is_sent && handler.sa_handler == SIG_IGN)
    return;
  if (is_back || handler.sa_handler == SIG_DFL || handler.sa_handler == SIG_IGN) {
    struct sigaction end{};
    end.sa_handler = SIG_DFL;
    sigaction(signal, &end, nullptr);
    if (is_sent)
      raise(signal);
    return;
  }
  if (handler.sa_flags & static_cast<int>(SA_RESETHAND)) {
    previous.sa_handler = SIG_DFL;
    previous.sa_flags = 0;
  }
  if (handler.sa_flags & SA_SIGINFO) {
    handler.sa_sigaction(signal, info, context);
  } else {
    handler.sa_handler(signal);
  }
}

void on_fault(int signal, siginfo_t *info, void *context) {
  constexpr long long kWrite = 2; // of the page fault's error code
  const auto &registers = static_cast<const ucontext_t *>(context)->uc_mcontext.gregs;
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  const int error = errno;
  const bool is_resolved = info->si_code == SEGV_ACCERR &&
                           resolve(address, registers[REG_ERR] & kWrite, static_cast<uint64_t>(registers[REG_RIP]));
  errno = error;
  if (!is_resolved)
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

void PageProtection::protect(uint64_t operation, uint64_t begin, uint64_t size, bool is_readable) {
  prepare_unwinder();
  handle_faults();
  std::lock_guard lock(spin);
  size_t at = 0;
  while (at < used && slots[at].operation)
    ++at;
  const Slot wanted{operation, begin, begin + size, is_readable, false};
  if (at == slots.size() || !set(wanted, is_readable ? PROT_READ : PROT_NONE)) {
    lost_protections = true;
    return;
  }
  used = std::max(used, at + 1);
  slots[at] = wanted;
  ++protections;
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
    protect_common(before);
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

bool PageProtection::has_lost_protections() { return lost_protections.load(std::memory_order_relaxed); }

bool PageProtection::has_lost_accesses() { return lost_accesses.load(std::memory_order_relaxed); }

void PageProtection::before_fork() { spin.lock(); }

void PageProtection::after_fork(bool is_child) {
  for (size_t at = 0; is_child && at < used; ++at)
    if (Slot &slot = slots[at]; slot.operation) {
      set(slot, PROT_READ | PROT_WRITE);
      slot = {};
    }
  if (is_child)
    used = 0, protections = 0, accessed = 0;
  spin.unlock();
}

} // namespace luthier
