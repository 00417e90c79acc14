#include "sightings.h"

#include "system.h"

namespace luthier {

using namespace layout;

namespace {

// Return the number of a launch among those of its kernel in this process, from 0 on.
uint64_t launch_number(const char *plan) {
  static std::mutex mutex;
  static auto *const launches = new std::map<const char *, uint64_t>;
  std::lock_guard lock(mutex);
  return (*launches)[plan]++;
}

} // namespace

bool Sightings::passes(const char *wave, uint64_t record, uint64_t address, uint64_t size, unsigned lane) {
  // Memory may have come since the launch began.
  if (memory_.exact_table(node_)->holds(address, size))
    return true;
  const char *host = memory_.table(node_)->host(address, size);
  const bool exists = host && reinterpret_cast<uint64_t>(host) == address;
  const auto near = ProgramMemory::get().nearest(address);
  const bool below = near && address < near->address;
  // An access that begins before an allocation and ends in it is outside, too, as is one that nobody's memory has.
  const bool freed = near && near->freed && !below && address - near->address < near->size;
  const wire::Sight kind = freed ? wire::Sight::kFreed : exists ? wire::Sight::kOutside : wire::Sight::kNowhere;
  const char *group = pointer<const char *>(wave, wave::group);
  std::lock_guard lock(mutex_);
  wire::Sighting &found = found_[{record, kind, near ? near->number : 0, below}];
  if (found.count++ == 0) {
    found.kernel = get(plan_, plan::kernel);
    found.record = record;
    found.kind = static_cast<uint64_t>(kind);
    found.address = address;
    found.size = size;
    found.lane = lane;
    found.wave = get(wave, wave::index);
    found.group = get(group, group::number);
    found.base = near ? near->address : 0;
    found.extent = near ? near->size : 0;
    found.allocation = near ? near->number : 0;
  }
  return exists;
}

void Sightings::tell(Service &service) {
  const uint64_t launch = launch_number(plan_);
  std::lock_guard lock(mutex_);
  for (auto &[key, found] : found_) {
    found.launch = launch;
    service.found(found);
  }
  found_.clear();
}

} // namespace luthier

// What the library that stands before HIP's functions found itself: a bad free, or memory never given back.
extern "C" void luthier_complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size) {
  using namespace luthier;
  if (System *system = System::current())
    try {
      wire::Sighting found{};
      found.kind = kind;
      found.address = address;
      found.base = base;
      found.extent = size;
      found.count = 1;
      system->service.found(found);
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: a finding is lost: %s\n", problem.what());
    }
}
