#include "sightings.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "exported.h"
#include "origins.h"
#include "system.h"
#include "take.h"
#include "undefined_memory.h"
#include "unwritten.h"

namespace luthier {

using namespace layout;

bool Sightings::passes(const char *wave, uint64_t record, uint64_t address, uint64_t size, unsigned lane) {
  // Memory may have come since the launch began.
  if (memory_.exact_table(node_)->holds(address, size))
    return true;
  const char *host = memory_.table(node_)->host(address, size);
  const bool exists = host && reinterpret_cast<uint64_t>(host) == address;
  uint64_t in_front = 0;
  const auto near = ProgramMemory::get().nearest(address, &in_front);
  const bool below = near && address < near->address;
  // An access that begins before an allocation and ends in it is outside, too, as is one outside of all memory.
  const bool freed = near && near->freed && near->has(address);
  // Compilers load beyond the end of a constant, up to the next multiple of the load's size.
  if (exists && near && near->module && near->has(address) && address % std::bit_ceil(size) == 0)
    return true;
  const wire::FindingKind kind = freed    ? wire::FindingKind::kFreed
                                 : exists ? wire::FindingKind::kOutside
                                          : wire::FindingKind::kNowhere;
  const char *group = pointer<const char *>(wave, wave::group);
  std::lock_guard lock(mutex_);
  Seen &seen = found_[{record, kind, near ? near->number : 0, below}];
  if (near && !freed) {
    const uint64_t end = below ? near->address : address, begin = below ? address + size : near->address + near->size;
    seen.gap = std::min(seen.gap, begin < end ? end - begin : 0);
    seen.in_front = in_front;
  }
  wire::Sighting &sighting = seen.sighting;
  if (sighting.count++ == 0) {
    sighting.kernel = get(plan_, plan::kernel);
    sighting.record = record;
    sighting.kind = static_cast<uint64_t>(kind);
    sighting.address = address;
    sighting.size = size;
    sighting.lane = lane;
    sighting.wave = get(wave, wave::index);
    sighting.group = group_number(group);
    if (near)
      near->put_into(sighting);
  }
  return exists;
}

std::vector<wire::Sighting> Sightings::take() {
  std::lock_guard lock(mutex_);
  // An access from one allocation into the next is reported once: for the one whose end it is nearer to.
  for (auto &[key, seen] : found_) {
    const auto &[record, kind, number, below] = key;
    const auto other = seen.in_front ? found_.find({record, kind, seen.in_front, false}) : found_.end();
    if (other == found_.end())
      continue;
    const bool is_behind = other->second.gap <= seen.gap;
    wire::Sighting &kept = is_behind ? other->second.sighting : seen.sighting;
    wire::Sighting &dropped = is_behind ? seen.sighting : other->second.sighting;
    kept.count += std::exchange(dropped.count, 0);
  }
  std::vector<wire::Sighting> all;
  for (const Seen &seen : luthier::take(found_))
    if (seen.sighting.count)
      all.push_back(seen.sighting);
  return all;
}

} // namespace luthier

LUTHIER_EXPORT bool luthier_checks_parts();
LUTHIER_EXPORT void luthier_fresh(uint64_t address, uint64_t size);
LUTHIER_EXPORT void luthier_complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size,
                                     luthier::CallTrace calls);

namespace {

// Null unless findings are wanted: other tools may also get the program's memory reported.
luthier::System *system_of_checks() {
  luthier::System *system = luthier::System::current();
  return system && system->service.setup().findings ? system : nullptr;
}

} // namespace

// Functions that the library calls that stands before the runtimes' functions.
LUTHIER_EXPORT void luthier_allocated(uint64_t address, uint64_t size, uint64_t reserved, luthier::CallTrace calls) {
  if (const auto *system = system_of_checks()) {
    luthier::ProgramMemory::get().allocated(address, size, reserved, calls);
    luthier::Origins::nans().fresh(address, size);
    system->checked.allocated(size);
  }
}
// Memory of a device is fine-grained as the program has asked.
LUTHIER_EXPORT void luthier_fine_grained(uint64_t address) {
  if (system_of_checks())
    luthier::ProgramMemory::get().fine_grained(address);
}
// Return whether anything is compared with parts of allocations.
LUTHIER_EXPORT bool luthier_checks_parts() { return system_of_checks(); }
// A part of an allocation, by luthier_annotate.h; and the end of one.
LUTHIER_EXPORT void luthier_part_allocated(uint64_t address, uint64_t size, luthier::CallTrace calls,
                                           const char *name) {
  const auto *system = system_of_checks();
  if (!system)
    return;
  using Division = luthier::ProgramMemory::Division;
  const Division done = luthier::ProgramMemory::get().divided(address, size, calls, name ? name : "");
  if (done != Division::kDone) {
    std::fprintf(stderr,
                 done == Division::kOverlap
                     ? "luthier: luthier_alloc: the %llu bytes at %#llx overlap a live part, and are left out: "
                       "call luthier_free for that part first\n"
                     : "luthier: luthier_alloc: no live allocation contains the %llu bytes at %#llx\n",
                 static_cast<unsigned long long>(size), static_cast<unsigned long long>(address));
    return;
  }
  system->checked.allocated(size);
  luthier_fresh(address, size);
}
LUTHIER_EXPORT void luthier_part_freed(uint64_t address, luthier::CallTrace calls) {
  using namespace luthier;
  if (!system_of_checks())
    return;
  const auto part = ProgramMemory::get().part_around(address);
  if (!part)
    std::fprintf(stderr, "luthier: luthier_free: %#llx is not in a part\n", static_cast<unsigned long long>(address));
  else if (part->address != address || part->freed)
    luthier_complain(
        static_cast<uint64_t>(part->freed ? wire::FindingKind::kDoubleFree : wire::FindingKind::kInvalidFree), address,
        part->address, part->size, calls);
  else
    ProgramMemory::get().part_freed(address, calls);
}
LUTHIER_EXPORT void luthier_freed(uint64_t address, luthier::CallTrace calls) {
  luthier::ProgramMemory::get().freed(address, calls);
}
LUTHIER_EXPORT void luthier_forget(uint64_t address) {
  using namespace luthier;
  const System *system = System::current();
  const uint64_t size = ProgramMemory::get().forget(address);
  if (size && system && system->service.setup().undefined)
    UndefinedMemory::get().define(address, size);
}

// Return how many of these bytes have undefined bits, and the address of the first one.
LUTHIER_EXPORT uint64_t luthier_undefined(uint64_t address, uint64_t size, uint64_t *first) {
  using namespace luthier;
  const System *system = system_of_checks();
  if (!system || !system->service.setup().undefined)
    return 0;
  const auto [count, begin] = UndefinedMemory::get().undefined(address, size);
  *first = begin;
  return count;
}

// New memory of a device: bytes that are not written count as unwritten again.
LUTHIER_EXPORT void luthier_fresh(uint64_t address, uint64_t size) {
  using namespace luthier;
  System *system = System::current();
  if (!system)
    return;
  const Setup &setup = system->service.setup();
  if (!setup.checks.uninitialised && !setup.undefined)
    return;
  const auto leave = [size](const char *why) {
    std::fprintf(stderr, "luthier: reads of an allocation of %llu bytes are not checked by init: %s\n",
                 static_cast<unsigned long long>(size), why);
  };
  if (size > kMostUnwritten)
    return leave("it is larger than 256 MiB");
  const char *bytes = nullptr;
  for (unsigned node = 1; node < system->nodes() && !bytes; ++node)
    bytes = system->memory.host(node, address, size);
  if (!bytes || reinterpret_cast<uint64_t>(bytes) != address)
    return leave("the host has no memory at its address");
  leave_unwritten(address, size);
  if (setup.undefined)
    UndefinedMemory::get().leave(address, size);
}

// A finding of the library that stands before the runtimes' functions: a bad free, with the calls that lead to it, or
// memory that is never given back.
LUTHIER_EXPORT void luthier_complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size,
                                     luthier::CallTrace calls) {
  using namespace luthier;
  if (System *system = system_of_checks())
    try {
      wire::Sighting sighting{};
      sighting.kind = kind;
      sighting.address = address;
      sighting.base = base;
      sighting.extent = size;
      sighting.count = 1;
      system->service.found(sighting, calls);
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: a finding is lost: %s\n", problem.what());
    }
}

// A finding of that library about a call of a HIP function.
LUTHIER_EXPORT void luthier_complain_of_call(uint64_t kind, uint64_t error, uint64_t offset, uint64_t address,
                                             uint64_t size, uint64_t base, uint64_t extent, const char *function,
                                             const char *symbol, const char *file) {
  using namespace luthier;
  if (System *system = system_of_checks())
    try {
      wire::CallSighting sighting{};
      sighting.kind = kind;
      sighting.error = error;
      sighting.offset = offset;
      sighting.address = address;
      sighting.size = size;
      sighting.base = base;
      sighting.extent = extent;
      system->service.found(sighting, function, symbol, file);
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: a finding is lost: %s\n", problem.what());
    }
}

// Report a launch that failed; `sighting` is a wire::CallSighting.
LUTHIER_EXPORT void luthier_complain_of_launch(const void *sighting, const char *function, const char *symbol,
                                               const char *file) {
  using namespace luthier;
  if (System *system = system_of_checks())
    try {
      system->service.found(*static_cast<const wire::CallSighting *>(sighting), function, symbol, file);
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: a finding is lost: %s\n", problem.what());
    }
}

// Return whether the host's uses of memory that operations in flight use are wanted.
LUTHIER_EXPORT bool luthier_checks_in_flight() {
  const auto *system = system_of_checks();
  return system && system->service.setup().in_flight;
}

// Report such a use; `sighting` is a wire::InFlightSighting.
LUTHIER_EXPORT void luthier_complain_in_flight(const void *sighting, const char *function, const char *operation,
                                               luthier::CallTrace calls, luthier::CallTrace enqueued) {
  using namespace luthier;
  if (System *system = system_of_checks())
    try {
      system->service.found(*static_cast<const wire::InFlightSighting *>(sighting), function, operation, calls,
                            enqueued);
    } catch (const std::exception &problem) {
      std::fprintf(stderr, "luthier: a finding is lost: %s\n", problem.what());
    }
}
