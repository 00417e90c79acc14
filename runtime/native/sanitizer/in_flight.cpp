#include "in_flight.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <string>
#include <vector>

#include "agreement.h"
#include "blocks.h"
#include "call_site.h"
#include "page_protection.h"
#include "sanitizer.h"

extern "C" {
// Of libluthier_kfd.so, which is loaded before.
bool luthier_checks_in_flight() __attribute__((weak));
// `function` is called by the device's thread when a copy engine has written bytes, before that shows.
void luthier_when_copied(void (*function)(uint64_t to, uint64_t size)) __attribute__((weak));
// `sighting` is a wire::InFlightSighting.
void luthier_complain_in_flight(const void *sighting, const char *function, const char *operation,
                                luthier::CallTrace calls, luthier::CallTrace enqueued) __attribute__((weak));
}

namespace luthier::in_flight {

namespace {

using wire::FindingKind;

struct Bytes {
  uint64_t address = 0, size = 0;
  bool overlap(const Bytes &other) const {
    return address < other.address + other.size && other.address < address + size;
  }
  bool contain(const Bytes &other) const {
    return other.address >= address && other.address + other.size <= address + size;
  }
};

// Line of work -> number of its operations that come before.
using Clock = std::map<uint64_t, uint64_t>;

void join(Clock &clock, const Clock &other) {
  for (const auto &[line, count] : other)
    clock[line] = std::max(clock[line], count);
}

uint64_t number_in(const Clock &clock, uint64_t line) {
  const auto entry = clock.find(line);
  return entry == clock.end() ? 0 : entry->second;
}

// The work of a stream.
struct Line {
  uint64_t number = 0;
  bool is_blocking = true; // it waits for the null stream, which waits for it
  uint64_t count = 0;
  Clock before; // what comes before its next operation
  Clock clock() const {
    Clock all = before;
    all[number] = count;
    return all;
  }
};

struct Operation {
  uint64_t number = 0, line = 0, place = 0; // in its line, from 1 on
  const char *function = "";
  CallTrace enqueued = nullptr;
  void *stream = nullptr;
  Bytes reads, writes;
  std::optional<Known> read_memory, written_memory; // pinned memory of the host
  uint64_t written = 0;                             // bytes that the device has written
  bool is_reported = false;
};

struct State {
  std::mutex mutex;
  std::map<void *, Line> lines;
  Clock gone; // the work of destroyed streams that wait for the null stream
  std::map<void *, Clock> events;
  Clock known; // to the host
  std::map<uint64_t, Clock> moments;
  std::map<uint64_t, uint64_t> registered; // address -> bytes
  std::deque<Operation> operations;        // in flight
  uint64_t lines_made = 0, operations_made = 0, moments_made = 0;
};

State &state() {
  static State *const made = new State; // never destroyed: programs copy while they end
  return *made;
}

// A finding, reported without the lock: the device waits for the service, and this library for the device.
struct Use {
  FindingKind kind;
  Operation operation;
  Known memory;
  Bytes bytes; // size 0: unknown
  bool writes;
  const char *function;
  CallTrace calls;
};

uint64_t number(const void *address) { return reinterpret_cast<uint64_t>(address); }

bool is_wanted() { return !inside && luthier_checks_in_flight && luthier_checks_in_flight(); }

void report(const Use &use) {
  if (!luthier_complain_in_flight)
    return;
  wire::InFlightSighting sighting{};
  sighting.kind = static_cast<uint64_t>(use.kind);
  sighting.address = use.bytes.address;
  sighting.size = use.bytes.size;
  sighting.writes = use.writes;
  sighting.base = use.memory.address;
  sighting.extent = use.memory.size;
  sighting.stream = number(use.operation.stream);
  sighting.operation_size = std::max(use.operation.reads.size, use.operation.writes.size);
  luthier_complain_in_flight(&sighting, use.function, use.operation.function, use.calls, use.operation.enqueued);
}

// Return the use of an operation's memory if that is an error.
std::optional<Use> use_of(Operation &operation, const Bytes &bytes, bool writes) {
  const bool writes_there = operation.written_memory && operation.writes.overlap(bytes);
  const bool reads_there = operation.read_memory && operation.reads.overlap(bytes);
  if (operation.is_reported || !(writes_there || (reads_there && writes)))
    return std::nullopt;
  operation.is_reported = true;
  return Use{writes_there ? FindingKind::kAccessInFlight : FindingKind::kWriteInFlight,
             operation,
             writes_there ? *operation.written_memory : *operation.read_memory,
             bytes,
             writes,
             "",
             nullptr};
}

Operation *operation_of(State &all, uint64_t wanted) {
  const auto place = std::find_if(all.operations.begin(), all.operations.end(),
                                  [wanted](const Operation &each) { return each.number == wanted; });
  return place == all.operations.end() ? nullptr : &*place;
}

bool is_of_c(const std::string &file) {
  return file.starts_with("libc.so") || file.starts_with("libc-") || file.starts_with("libstdc++");
}

// What cannot be checked, each reported once, when it first happens.
enum Loss : unsigned { kLostProtections, kLostCopies, kLostAccesses, kLostStacks, kLosses };
std::atomic<bool> lost[kLosses];

void report_losses() {
  static constexpr struct {
    const char *what, *why;
  } kTexts[kLosses] = {
      {"pages of copies in flight", "4,096 ranges were protected already, or the system protects no more"},
      {"copies in flight", "4,096 later ones were in flight"},
      {"accesses of memory in flight", "256 came between two calls of HIP functions"},
      {"accesses of memory in flight without a stack of calls", "65,536 stacks are kept"},
  };
  static std::atomic<bool> is_told[kLosses];
  lost[kLostProtections] = lost[kLostProtections] || PageProtection::has_lost_protections();
  lost[kLostAccesses] = lost[kLostAccesses] || PageProtection::has_lost_accesses();
  for (unsigned loss = 0; loss < kLosses; ++loss) {
    if (!lost[loss] || !luthier_complain_in_flight || is_told[loss].exchange(true))
      continue;
    wire::InFlightSighting sighting{};
    sighting.kind = static_cast<uint64_t>(FindingKind::kOnlyPages);
    luthier_complain_in_flight(&sighting, kTexts[loss].what, kTexts[loss].why, nullptr, nullptr);
  }
}

// Return the calls that lead to an access, from the program's code on; null if a runtime or the device does it.
CallTrace calls_of(const PageProtection::Access &access) {
  for (size_t at = 0; at < access.count; ++at) {
    const std::string file = library_of(static_cast<const char *>(access.returns[at]) - 1);
    if (!call_site(access.returns[at]).file[0] || is_of_c(file))
      continue;
    if (is_runtime(file))
      return nullptr;
    const CallTrace calls = stack_of({access.returns.data() + at, access.returns.data() + access.count});
    if (!calls)
      lost[kLostStacks] = true;
    return calls;
  }
  return nullptr;
}

// Report the accesses to protected memory so far.
void report_accesses() {
  for (const PageProtection::Access &access : PageProtection::take()) {
    const CallTrace calls = calls_of(access);
    if (!calls)
      continue;
    std::optional<Use> use;
    {
      State &all = state();
      std::lock_guard lock(all.mutex);
      if (Operation *const operation = operation_of(all, access.operation))
        use = use_of(*operation, {access.address, 1}, access.writes);
    }
    if (use) {
      use->bytes.size = 0;
      use->calls = calls;
      report(*use);
    }
  }
  report_losses();
}

void before_fork() {
  state().mutex.lock();
  PageProtection::before_fork();
}

void after_fork_in_parent() {
  PageProtection::after_fork(false);
  state().mutex.unlock();
}

void after_fork_in_child() {
  PageProtection::after_fork(true);
  state().operations.clear();
  state().mutex.unlock();
}

struct AtExit {
  AtExit() noexcept { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }
  ~AtExit() { report_accesses(); }
} at_exit;

// Return pinned memory of the host that has these bytes.
std::optional<Known> pinned(State &all, const Bytes &bytes) {
  const auto *address = reinterpret_cast<const void *>(bytes.address); // NOLINT(*-no-int-to-ptr)
  if (const auto known = known_around(address); known && !known->freed && known->pinned)
    return known;
  const auto after = all.registered.upper_bound(bytes.address);
  if (after == all.registered.begin())
    return std::nullopt;
  const auto &[base, size] = *std::prev(after);
  if (bytes.address - base < size)
    return Known{base, size, false, false, true};
  return std::nullopt;
}

// Return whole pages of these bytes: those that nothing else is in.
Bytes pages_of(const Bytes &bytes, const Known &memory) {
  const bool is_own = memory.address % kPage == 0; // an allocation begins with its own page, registered memory may not
  uint64_t begin = bytes.address, end = bytes.address + bytes.size;
  begin = (begin + kPage - 1) / kPage * kPage;
  const bool is_end = is_own && memory.is_allocation && end == memory.address + memory.size;
  end = (is_end ? end + kPage - 1 : end) / kPage * kPage;
  return {begin, end > begin ? end - begin : 0};
}

void protect(const Operation &operation, const Bytes &bytes, const Known &memory, bool is_readable) {
  const auto [begin, size] = pages_of(bytes, memory);
  if (size)
    PageProtection::protect(operation.number, begin, size, is_readable);
}

void *key_of(void *stream) {
  thread_local char own; // stands for this thread's default stream
  constexpr uintptr_t kLegacy = 1, kPerThread = 2;
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  return handle == kLegacy ? nullptr : handle == kPerThread ? &own : stream;
}

// Return the line of a stream, whose next operation comes after what it waits for.
Line &line_of(State &all, void *stream) {
  void *const key = key_of(stream);
  const auto [entry, is_new] = all.lines.try_emplace(key);
  Line &line = entry->second;
  if (is_new) {
    line.number = ++all.lines_made;
    constexpr unsigned kNonBlocking = 1;
    unsigned flags = 0;
    Inside now;
    if (auto *const own = next_function<int(void *, unsigned *)>("hipStreamGetFlags", "libamdhip64");
        own && key && own(stream, &flags) == kSuccess)
      line.is_blocking = !(flags & kNonBlocking);
  }
  if (!key) {
    for (const auto &[other, its] : all.lines)
      if (its.is_blocking && other)
        join(line.before, its.clock());
    join(line.before, all.gone);
  } else if (const auto null = all.lines.find(nullptr); line.is_blocking && null != all.lines.end()) {
    join(line.before, null->second.clock());
  }
  return line;
}

// The host knows that everything before a moment is done.
void learn(State &all, const Clock &clock) {
  join(all.known, clock);
  std::erase_if(all.gone, [&](const auto &each) { return each.second <= number_in(all.known, each.first); });
  std::erase_if(all.operations, [&](const Operation &each) {
    const bool is_known = each.place <= number_in(all.known, each.line);
    if (is_known)
      PageProtection::release(each.number);
    return is_known;
  });
}

void learn_all(State &all) {
  for (const auto &[stream, line] : all.lines)
    all.known[line.number] = line.count;
  for (const Operation &each : all.operations)
    PageProtection::release(each.number);
  all.operations.clear();
  all.gone.clear();
}

// The device has written bytes: from then on the host's accesses are seen.
void copied(uint64_t to, uint64_t size) {
  State &all = state();
  std::lock_guard lock(all.mutex);
  for (Operation &each : all.operations) {
    if (!each.written_memory || each.written >= each.writes.size || !each.writes.contain({to, size}))
      continue;
    each.written += size;
    if (each.written >= each.writes.size)
      protect(each, each.writes, *each.written_memory, false);
    return;
  }
}

bool is_captured(void *stream) {
  static auto *const own = next_function<int(void *, int *)>("hipStreamIsCapturing", "libamdhip64");
  int status = 0;
  Inside now;
  return own && own(stream, &status) == kSuccess && status;
}

// Do something with the state, after what the program has done so far is reported.
template <typename Change> void change(Change what) {
  if (!is_wanted())
    return;
  report_accesses();
  State &all = state();
  std::lock_guard lock(all.mutex);
  what(all);
}

} // namespace

uint64_t begin_copy(const char *function, const void *to, const void *from, size_t size, void *stream) {
  if (!is_wanted() || !size || is_captured(stream))
    return 0;
  report_accesses();
  if (luthier_when_copied) {
    static const bool is_listening = [] {
      luthier_when_copied(copied);
      return true;
    }();
    static_cast<void>(is_listening);
  }
  const CallTrace calls = calls_here();
  State &all = state();
  std::lock_guard lock(all.mutex);
  Line &line = line_of(all, stream);
  Operation made;
  made.number = ++all.operations_made;
  made.line = line.number, made.place = ++line.count;
  made.function = function, made.enqueued = calls, made.stream = stream;
  made.reads = {number(from), size};
  made.writes = {number(to), size};
  made.read_memory = pinned(all, made.reads);
  made.written_memory = pinned(all, made.writes);
  constexpr size_t kMost = 4096; // if the program never waits, the oldest are dropped
  if (all.operations.size() == kMost) {
    lost[kLostCopies] = true;
    PageProtection::release(all.operations.front().number);
    all.operations.pop_front();
  }
  all.operations.push_back(made);
  if (made.read_memory)
    protect(made, made.reads, *made.read_memory, true);
  return made.number;
}

void end_copy(uint64_t copy, void *stream, bool is_enqueued) {
  if (!copy)
    return;
  bool is_synchronous = false;
  change([&](State &all) {
    Operation *const operation = operation_of(all, copy);
    if (!operation)
      return;
    const auto is_pageable = [](const Bytes &bytes, const std::optional<Known> &memory) {
      return !memory && !known_around(reinterpret_cast<const void *>(bytes.address)); // NOLINT(*-no-int-to-ptr)
    };
    // Of memory that is not pinned, HIP copies synchronously.
    is_synchronous = is_pageable(operation->reads, operation->read_memory) ||
                     is_pageable(operation->writes, operation->written_memory);
    if (!is_enqueued) {
      PageProtection::release(copy);
      std::erase_if(all.operations, [copy](const Operation &each) { return each.number == copy; });
    }
  });
  if (is_enqueued && is_synchronous)
    synchronised(stream);
}

void synchronised(void *stream) {
  change([stream](State &all) { learn(all, line_of(all, stream).clock()); });
}

void all_synchronised() { change(learn_all); }

void recorded(void *event, void *stream) {
  change([&](State &all) { all.events[event] = line_of(all, stream).clock(); });
}

void forget_event(void *event) {
  change([event](State &all) { all.events.erase(event); });
}

void stream_waits(void *stream, void *event) {
  change([&](State &all) {
    Line &line = line_of(all, stream);
    if (const auto entry = all.events.find(event); entry != all.events.end()) {
      join(line.before, entry->second);
      return;
    }
    for (const auto &[other, its] : all.lines) // recorded anywhere
      join(line.before, its.clock());
  });
}

void event_passed(void *event) {
  change([event](State &all) {
    const auto entry = all.events.find(event);
    entry == all.events.end() ? learn_all(all) : learn(all, entry->second);
  });
}

void destroyed_stream(void *stream) {
  change([stream](State &all) {
    if (const auto entry = all.lines.find(key_of(stream)); entry != all.lines.end()) {
      if (entry->second.is_blocking)
        join(all.gone, entry->second.clock());
      all.lines.erase(entry);
    }
  });
}

uint64_t moment(void *stream) {
  uint64_t made = 0;
  change([&](State &all) { all.moments[made = ++all.moments_made] = line_of(all, stream).clock(); });
  return made;
}

void reached(uint64_t moment) {
  if (moment)
    change([moment](State &all) {
      const auto entry = all.moments.find(moment);
      if (entry == all.moments.end())
        return;
      learn(all, entry->second);
      all.moments.erase(entry);
    });
}

void registered(void *address, size_t size) {
  change([&](State &all) { all.registered[number(address)] = size; });
}

void unregistered(void *address) {
  change([address](State &all) {
    learn_all(all);
    all.registered.erase(number(address));
  });
}

void freed_in(void *stream, const void *address) {
  if (!is_wanted())
    return;
  const auto memory = known_around(address);
  const CallTrace calls = calls_here();
  std::vector<Use> uses;
  change([&](State &all) {
    if (!memory || memory->freed)
      return;
    const Bytes bytes{memory->address, memory->size};
    const Clock before = line_of(all, stream).clock();
    for (const Operation &each : all.operations)
      if ((each.reads.overlap(bytes) || each.writes.overlap(bytes)) && number_in(before, each.line) < each.place)
        uses.push_back({FindingKind::kFreeInFlight, each, *memory, bytes, true, "hipFreeAsync", calls});
  });
  for (const Use &use : uses)
    report(use);
}

} // namespace luthier::in_flight

using namespace luthier;
using namespace luthier::in_flight;

extern "C" void luthier_used_by_call(const char *function, const void *address, size_t size, bool writes) {
  if (!PageProtection::is_used() || !size)
    return;
  const Bytes bytes{number(address), size};
  const uint64_t lifted = PageProtection::lift(bytes.address, bytes.size, writes);
  if (!lifted || !is_wanted())
    return;
  Inside now;
  const CallTrace calls = calls_here();
  std::optional<Use> use;
  {
    State &all = state();
    std::lock_guard lock(all.mutex);
    if (Operation *const operation = operation_of(all, lifted))
      use = use_of(*operation, bytes, writes);
  }
  if (use) {
    use->function = function;
    use->calls = calls;
    report(*use);
  }
}
