#include "system.h"

#include <pthread.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>

namespace luthier {

namespace {

std::mutex open_mutex;
System *the_system = nullptr;

// A child has none of its parent's threads, and must not use its socket.
void forget() {
  new (&open_mutex) std::mutex;
  the_system = nullptr;
  ExecutionCounters::forget();
}

void tell_counts() {
  if (System *system = System::current())
    try {
      system->service.ask(wire::Counts{true, counts_of(ExecutionCounters::get().take())});
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: the counts of executed instructions are lost: %s\n", problem.what());
    }
}

void tell_launches() {
  if (System *system = System::current())
    try {
      system->sampled.report(true);
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: the numbers of launches are lost: %s\n", problem.what());
    }
}

unsigned helpers() {
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return cores > 1 ? cores - 1 : 0;
}

// Bytes of each node's own memory; the host's is not counted.
std::vector<uint64_t> memory_sizes(const Setup &setup) {
  std::vector<uint64_t> sizes{0};
  for (const Gpu &gpu : setup.gpus)
    sizes.push_back(gpu.memory_bytes);
  return sizes;
}

} // namespace

System &System::open() {
  static const int registered = pthread_atfork(nullptr, nullptr, forget);
  (void)registered;
  std::lock_guard lock(open_mutex);
  if (!the_system) {
    the_system = new System;
    if (the_system->service.setup().counts_wanted)
      std::atexit(tell_counts);
    if (the_system->service.setup().projected)
      std::atexit(tell_launches);
  }
  return *the_system;
}

System *System::current() {
  std::lock_guard lock(open_mutex);
  return the_system;
}

System::System()
    : memory(memory_sizes(service.setup())),
      events(reinterpret_cast<uint64_t *>(memory.allocate(kMaxEvents * sizeof(uint64_t), all_gpus()))),
      plans(service, memory, debugging), pool(service.setup().engine, helpers()), long_launches(service),
      hot_code(service), order(service, memory), checked(service), sampled(service),
      room{service, memory,        events,    plans,
           pool,    long_launches, hot_code,  order,
           checked, sampled,       debugging, [this](unsigned node, uint64_t address) { report(node, address); }} {}

std::vector<uint32_t> System::all_gpus() const {
  std::vector<uint32_t> all;
  for (unsigned node = 1; node < nodes(); ++node)
    all.push_back(node);
  return all;
}

std::optional<System::MemoryFault> System::fault() const {
  std::lock_guard lock(mutex_);
  return fault_;
}

void System::on_fault(std::function<void(const MemoryFault &)> listener) {
  std::lock_guard lock(mutex_);
  fault_listeners_.push_back(std::move(listener));
}

void System::report(unsigned node, uint64_t address) {
  std::lock_guard lock(mutex_);
  fault_ = {node, address};
  for (const auto &listener : fault_listeners_)
    listener(*fault_);
}

uint64_t System::add(std::unique_ptr<Queue> queue) {
  std::lock_guard lock(mutex_);
  Queue &added = *queue;
  queues_.emplace(next_queue_, std::move(queue));
  debugging.raise(next_queue_, exceptions::kNewQueue);
  added.start(next_queue_);
  return next_queue_++;
}

Queue *System::queue(uint64_t id) {
  std::lock_guard lock(mutex_);
  auto entry = queues_.find(id);
  return entry == queues_.end() ? nullptr : entry->second.get();
}

bool System::remove(uint64_t id) {
  std::unique_ptr<Queue> removed;
  {
    std::lock_guard lock(mutex_);
    auto entry = queues_.find(id);
    if (entry == queues_.end())
      return false;
    removed = std::move(entry->second);
    queues_.erase(entry);
  }
  removed->stop();
  debugging.forget(id);
  return true;
}

} // namespace luthier
