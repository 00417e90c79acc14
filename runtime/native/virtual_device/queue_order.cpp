#include "queue_order.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "call_site.h"
#include "exported.h"
#include "hsa_layouts.h"
#include "origins.h"
#include "program_memory.h"
#include "system.h"

namespace luthier {

namespace {

constexpr size_t kMostBytes = size_t{512} << 20; // of what is known of launches that have ended
constexpr size_t kMostDone = 4096, kMostCalls = 1024;

uint64_t at(const VectorClock &clock, size_t queue) { return queue < clock.size() ? clock[queue] : 0; }

void add(VectorClock &clock, size_t queue, uint64_t number) {
  if (clock.size() <= queue)
    clock.resize(queue + 1);
  clock[queue] = std::max(clock[queue], number);
}

void add(VectorClock &clock, const VectorClock &other) {
  for (size_t queue = 0; queue < other.size(); ++queue)
    add(clock, queue, other[queue]);
}

// Return whether tools are loaded, which change signals and kernels of the program unobserved.
bool has_tools() {
  static const bool result = std::getenv("HSA_TOOLS_LIB") || std::getenv("ROCP_TOOL_LIBRARIES");
  return result;
}

} // namespace

QueueOrder::Member *QueueOrder::join(std::function<uint64_t()> submitted, std::function<uint64_t()> taken) {
  if (!service_.setup().checks.races)
    return nullptr;
  std::lock_guard lock(mutex_);
  members_.push_back(std::make_unique<Member>());
  Member &made = *members_.back();
  made.number_ = members_.size() - 1;
  made.submitted_ = std::move(submitted);
  made.taken_ = std::move(taken);
  return &made;
}

void QueueOrder::leave(Member *member) {
  if (!member)
    return;
  std::lock_guard lock(mutex_);
  member->submitted_ = nullptr;
  member->submissions_.clear();
  member->running_ = false;
}

void QueueOrder::begin(Member *member, uint64_t place, bool works) {
  if (!member)
    return;
  std::lock_guard lock(mutex_);
  auto &known = member->submissions_;
  while (!known.empty() && known.front().end <= place)
    known.pop_front();
  add(member->before_, known.empty() ? seen_ : known.front().seen);
  ++member->operations_;
  member->running_ = works;
}

// Return the known state of the signal at a place in memory; null if there is none, or it is not known completely.
QueueOrder::Signals::value_type *QueueOrder::signal_at(const void *place) {
  const auto address = reinterpret_cast<uint64_t>(place);
  const auto after = signals_.upper_bound(address);
  if (after == signals_.begin() || address >= std::prev(after)->first + sizeof(hsa::Signal))
    return nullptr;
  return &*std::prev(after);
}

// Order what the host submits from now on after what it may have seen.
void QueueOrder::see(const VectorClock &clock) {
  VectorClock more = seen_;
  add(more, clock);
  if (more == seen_)
    return;
  for (const auto &each : members_) {
    const uint64_t end = each->submitted_ ? each->submitted_() : 0;
    if (auto &known = each->submissions_; known.empty() || known.back().end < end)
      known.push_back({end, seen_});
  }
  seen_ = std::move(more);
}

void QueueOrder::waited(Member *member, const void *place) {
  if (!member || !place)
    return;
  std::lock_guard lock(mutex_);
  if (const auto *signal = signal_at(place))
    return add(member->before_, signal->second.clock);
  add(member->before_, seen_);
  add(member->before_, ended_);
}

void QueueOrder::publish(Member *member, const void *place) {
  if (!member)
    return;
  std::lock_guard lock(mutex_);
  VectorClock clock = member->before_;
  add(clock, member->number_, member->operations_);
  auto *const signal = signal_at(place);
  if (!signal)
    return see(clock);
  auto &[handle, known] = *signal;
  known.before = known.clock;
  known.value_before = hsa::value_of(handle);
  add(known.clock, clock);
  if (known.looked_at)
    see(known.clock);
}

void QueueOrder::add_signal(uint64_t handle) {
  if (has_tools())
    return;
  std::lock_guard lock(mutex_);
  signals_[handle] = {};
}

void QueueOrder::remove_signal(uint64_t handle) {
  std::lock_guard lock(mutex_);
  signals_.erase(handle);
}

void QueueOrder::open_signal(uint64_t handle) {
  std::lock_guard lock(mutex_);
  if (const auto signal = signals_.find(handle); signal != signals_.end()) {
    see(signal->second.clock);
    signals_.erase(signal);
  }
}

void QueueOrder::looked_at(uint64_t handle, int64_t value) {
  std::lock_guard lock(mutex_);
  if (const auto signal = signals_.find(handle); signal != signals_.end())
    see(value == signal->second.value_before ? signal->second.before : signal->second.clock);
}

// A queue that waits for it then comes after what the host has seen.
void QueueOrder::changes(uint64_t handle) {
  std::lock_guard lock(mutex_);
  if (const auto signal = signals_.find(handle); signal != signals_.end()) {
    add(signal->second.clock, seen_);
    signal->second.before = signal->second.clock;
    signal->second.looked_at = false;
  }
}

void QueueOrder::copy_waits_for(uint64_t handle) {
  std::lock_guard lock(mutex_);
  if (const auto signal = signals_.find(handle); signal != signals_.end()) {
    see(signal->second.clock);
    signal->second.looked_at = true;
  }
}

// Return the clock of an operation that comes after all that have begun.
VectorClock QueueOrder::now() const {
  VectorClock all;
  for (const auto &member : members_)
    add(all, member->number_, member->operations_);
  return all;
}

// Order a queue after all operations whose writes it may have seen: the running ones, and such ones among those that
// have ended.
void QueueOrder::hear(Member &member, const std::function<bool(const Done &)> &hears_of) {
  const bool alone = std::none_of(members_.begin(), members_.end(),
                                  [&](const auto &each) { return each->running_ && each->number_ != member.number_; });
  if (!alone)
    return add(member.before_, now());
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto &each : done_)
      if (at(member.before_, each->queue) < each->number && (each->unknown || hears_of(*each))) {
        add(member.before_, each->after);
        changed = true;
      }
  }
}

void QueueOrder::compare(const Done &done, std::vector<Meeting> &meetings) const {
  for (const auto &each : done_) {
    if (each->queue == done.queue || at(done.before, each->queue) >= each->number ||
        at(each->before, done.queue) >= done.number || (each->trace && each->trace->tells()))
      continue;
    if (done.trace && each->trace && !each->trace->hears_of(*done.trace))
      meetings.push_back({done.trace->races_with(*each->trace), {}});
    else if (done.trace && !each->trace && !each->unknown)
      meetings.push_back({done.trace->races_with(each->copy), each->copy});
    else if (!done.trace && each->trace && !each->trace->hears_of(done.copy))
      meetings.push_back({each->trace->races_with(done.copy), done.copy});
  }
}

void QueueOrder::end(Member *member, std::shared_ptr<const AccessChecks> checks, uint64_t launch) {
  if (!member)
    return;
  std::vector<Meeting> meetings;
  {
    auto done = std::make_unique<Done>();
    done->trace = std::make_unique<LaunchTrace>(std::move(checks), launch, memory_);
    const LaunchTrace &trace = *done->trace;
    std::lock_guard lock(mutex_);
    if (trace.hears()) {
      add(member->before_, seen_);
      hear(*member,
           [&](const Done &other) { return other.trace ? trace.hears_of(*other.trace) : trace.hears_of(other.copy); });
    }
    done->queue = member->number_;
    done->number = member->operations_;
    done->before = member->before_;
    if (!trace.tells())
      compare(*done, meetings);
    const bool tells = trace.tells();
    keep(*member, std::move(done), tells);
  }
  tell(meetings);
}

// Return what a kernel of the runtime has copied, or filled, by which the program asked for last with addresses that
// are among its arguments.
std::optional<CopiedBytes> QueueOrder::copied_by(std::span<const uint64_t> arguments) {
  // Launches of the program that tools have changed are not known, either.
  if (has_tools())
    return std::nullopt;
  std::set<uint64_t> allocations;
  for (const uint64_t word : arguments)
    if (const auto near = ProgramMemory::get().nearest(word); near && near->has(word))
      allocations.insert(near->address);
  const auto has = [&](uint64_t word) { return std::count(arguments.begin(), arguments.end(), word) != 0; };
  std::lock_guard lock(mutex_);
  const auto call = std::find_if(calls_.rbegin(), calls_.rend(), [&](const CopyCall &each) {
    const auto &[from, to] = each.bytes;
    return has(to.address) && (from.size ? has(from.address) : allocations.size() == 1);
  });
  return call == calls_.rend() ? std::nullopt : std::optional(call->bytes);
}

// It may be a copy to where the host looks, so what comes after it is behind all.
void QueueOrder::end_unknown(Member *member, std::span<const uint64_t> arguments) {
  if (!member)
    return;
  if (const auto copy = copied_by(arguments))
    return end(member, *copy);
  std::lock_guard lock(mutex_);
  auto done = std::make_unique<Done>();
  done->queue = member->number_;
  done->number = member->operations_;
  done->unknown = true;
  add(member->before_, now());
  keep(*member, std::move(done), false);
}

// What comes after a copy of a flag that a launch may set meanwhile is behind that: the host may look at the copy.
void QueueOrder::end(Member *member, const CopiedBytes &copy) {
  if (!member)
    return;
  std::vector<Meeting> meetings;
  {
    std::lock_guard lock(mutex_);
    auto done = std::make_unique<Done>();
    done->queue = member->number_;
    done->number = member->operations_;
    done->before = member->before_;
    done->copy = copy;
    compare(*done, meetings);
    if (copy.from.size && copy.from.size <= kWidestFlag && memory_.is_private(copy.from.address))
      hear(*member, [&](const Done &other) {
        return other.trace ? other.trace->writes(copy.from) : other.copy.to.touches(copy.from);
      });
    keep(*member, std::move(done),
         copy.from.size <= kWidestFlag && copy.to.size <= kWidestFlag && !memory_.is_private(copy.to.address));
  }
  tell(meetings);
}

// `tells`: the host may have seen in memory that it is done.
void QueueOrder::keep(Member &member, std::unique_ptr<Done> done, bool tells) {
  member.running_ = false;
  done->after = member.before_;
  add(done->after, done->queue, done->number);
  add(ended_, done->after);
  if (tells)
    see(done->after);
  bytes_ += done->bytes();
  done_.push_back(std::move(done));
  forget();
}

// Return whether all operations that can still begin, or end, come after an operation.
bool QueueOrder::is_over(const Done &done) const {
  if (at(seen_, done.queue) < done.number)
    return false;
  return std::all_of(members_.begin(), members_.end(), [&](const auto &each) {
    if (each->number_ == done.queue || !each->submitted_ || at(each->before_, done.queue) >= done.number)
      return true;
    const VectorClock &next = each->submissions_.empty() ? seen_ : each->submissions_.front().seen;
    return !each->running_ && at(next, done.queue) >= done.number;
  });
}

void QueueOrder::forget() {
  for (const auto &each : members_)
    if (auto &known = each->submissions_; each->submitted_)
      while (!known.empty() && known.front().end <= each->taken_())
        known.pop_front();
  for (auto each = done_.begin(); each != done_.end();)
    if (bytes_ > kMostBytes || done_.size() > kMostDone || is_over(**each)) {
      bytes_ -= (*each)->bytes();
      each = done_.erase(each);
    } else
      ++each;
}

void QueueOrder::tell(const std::vector<Meeting> &meetings) {
  for (const Meeting &each : meetings)
    for (const wire::Sighting &race : each.races)
      race.has_copy ? tell_copy(race, each.copy) : service_.found(race);
}

// Report a race with a copy, and the last call that requested one of these bytes.
void QueueOrder::tell_copy(const wire::Sighting &race, const CopiedBytes &copy) {
  const auto is_within = [](const Bytes &part, const Bytes &whole) {
    return part.address >= whole.address && part.address + part.size <= whole.address + whole.size;
  };
  CopyCall call{{}, "", nullptr};
  {
    std::lock_guard lock(mutex_);
    const auto last = std::find_if(calls_.rbegin(), calls_.rend(), [&](const CopyCall &each) {
      return race.copy_writes ? is_within(copy.to, each.bytes.to) : is_within(copy.from, each.bytes.from);
    });
    if (last != calls_.rend())
      call = *last;
  }
  const CallSite site = call_site(call.site);
  wire::Sighting sighting = race;
  sighting.other_record = site.offset;
  service_.ask(wire::FoundCopy{sighting, call.function, site.symbol, site.file});
}

void QueueOrder::calls(const CopyCall &call) {
  std::lock_guard lock(mutex_);
  calls_.push_back(call);
  if (calls_.size() > kMostCalls)
    calls_.pop_front();
}

} // namespace luthier

// Called by the library that stands before HIP's functions, for a call that copies, or, without a source, fills.
LUTHIER_EXPORT void luthier_copies(uint64_t to, uint64_t from, uint64_t size, const char *function, const void *site) {
  using namespace luthier;
  Origins::nans().fresh(to, size);
  if (System *system = System::current(); system && system->service.setup().checks.races)
    system->order.calls({{{from, from ? size : 0}, {to, size}}, function, site});
}

namespace {

luthier::QueueOrder *order_of_races() {
  luthier::System *system = luthier::System::current();
  return system && system->service.setup().checks.races ? &system->order : nullptr;
}

} // namespace

// Called by the library that stands before ROCr's functions of signals, for the program's uses of one.
LUTHIER_EXPORT void luthier_signal_made(uint64_t handle) {
  if (luthier::QueueOrder *order = order_of_races())
    order->add_signal(handle);
}
LUTHIER_EXPORT void luthier_signal_destroyed(uint64_t handle) {
  if (luthier::QueueOrder *order = order_of_races())
    order->remove_signal(handle);
}
LUTHIER_EXPORT void luthier_signal_opened(uint64_t handle) {
  if (luthier::QueueOrder *order = order_of_races())
    order->open_signal(handle);
}
LUTHIER_EXPORT void luthier_signal_read(uint64_t handle, int64_t value) {
  if (luthier::QueueOrder *order = order_of_races())
    order->looked_at(handle, value);
}
LUTHIER_EXPORT void luthier_signal_written(uint64_t handle) {
  if (luthier::QueueOrder *order = order_of_races())
    order->changes(handle);
}
LUTHIER_EXPORT void luthier_signal_awaited(uint64_t handle) {
  if (luthier::QueueOrder *order = order_of_races())
    order->copy_waits_for(handle);
}
