#include "events.h"

#include <algorithm>
#include <fnmatch.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace luthier {

using wire::EventHead, wire::EventRecord;

namespace {

std::atomic<bool> *on_switch = nullptr;

// A forked child has the memory of its parent's events, which are not its own.
void forget() {
  if (on_switch)
    *on_switch = false;
}

uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * 1'000'000'000ull + time.tv_nsec;
}

} // namespace

EventLog::EventLog(Client &client, Faults &faults) : client_(client), faults_(faults) {
  static const int registered = pthread_atfork(nullptr, nullptr, forget);
  (void)registered;
  on_switch = &on_;
}

uint32_t EventLog::add(const std::vector<ApiFunction> &functions) {
  std::lock_guard lock(mutex_);
  const wire::MemoryFile events = client_.ask(wire::Functions{functions});
  const int file = events.memory.fd;
  if (!head_) {
    void *memory = mmap(nullptr, events.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
      close(file);
      throw Failure("cannot map the memory for API events");
    }
    auto *head = static_cast<EventHead *>(memory);
    try {
      check_mapping(head->digest, kToolLibrary, "the ring of API events");
    } catch (...) {
      close(file);
      throw;
    }
    head_ = head;
    records_ = reinterpret_cast<EventRecord *>(head + 1);
    count_ = (events.size - sizeof(EventHead)) / sizeof(EventRecord);
    on_ = true;
  }
  close(file);
  const uint32_t first = functions_;
  functions_ += functions.size();
  return first;
}

bool EventLog::is_own() const { return client_.is_own(); }

uint64_t EventLog::enter(uint32_t function, std::span<const uint64_t> values) {
  EventRecord record{};
  record.call = calls_.fetch_add(1, std::memory_order_relaxed);
  record.function = function;
  put(record, values);
  return record.call;
}

void EventLog::exit(uint32_t function, uint64_t call, const uint64_t *result, std::span<const uint64_t> values) {
  EventRecord record{};
  record.call = call;
  record.function = function;
  record.is_exit = 1;
  record.has_result = result != nullptr;
  record.result = result ? *result : 0;
  put(record, values);
}

void EventLog::put(EventRecord &record, std::span<const uint64_t> values) {
  if (!on_)
    return;
  record.count = std::min(values.size(), std::size(record.values));
  std::copy_n(values.begin(), record.count, record.values);
  record.thread = thread_number();
  std::lock_guard lock(mutex_);
  const uint64_t place = head_->written;
  if (place - __atomic_load_n(&head_->read, __ATOMIC_ACQUIRE) >= count_)
    try {
      client_.ask(wire::Drain{});
      if (place - __atomic_load_n(&head_->read, __ATOMIC_ACQUIRE) >= count_)
        throw Failure("the Luthier service has stopped reading API events: no more are recorded");
    } catch (const std::exception &problem) {
      on_ = false;
      faults_.tell(problem.what());
      return;
    }
  record.time = now();
  records_[place % count_] = record;
  __atomic_store_n(&head_->written, place + 1, __ATOMIC_RELEASE);
}

bool EventLog::wanted(const std::vector<std::string> &patterns, const char *name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string &pattern) { return fnmatch(pattern.c_str(), name, 0) == 0; });
}

bool EventLog::read(uint64_t from, size_t size, bool is_signed, uint64_t &value) {
  value = 0;
  if (!from || size > sizeof value)
    return false;
  iovec local{&value, size}, remote{reinterpret_cast<void *>(from), size};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(size))
    return false;
  value = extend(value, size, is_signed);
  return true;
}

uint64_t EventLog::extend(uint64_t value, size_t size, bool is_signed) {
  const unsigned unused = 64 - 8 * size;
  return is_signed ? static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused) : value;
}

} // namespace luthier
