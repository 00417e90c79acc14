// Bad accesses of one launch: equal ones are merged, and all are reported to the service when the launch has ended.
#pragma once

#include <map>
#include <mutex>
#include <tuple>

#include "bounds.h"
#include "memory.h"
#include "program_memory.h"
#include "service.h"

namespace luthier {

class Sightings final : public BoundsCheck {
public:
  Sightings(Memory &memory, unsigned node, const char *plan) : memory_(memory), node_(node), plan_(plan) {}
  // Add an access. May be called on the thread of any worker.
  bool passes(const char *wave, uint64_t record, uint64_t address, uint64_t size, unsigned lane) override;
  // Return and forget the findings so far.
  std::vector<wire::Sighting> take();

private:
  using Key = std::tuple<uint64_t, wire::FindingKind, uint64_t, bool>; // record, kind, allocation, whether it is below
  Memory &memory_;
  unsigned node_;
  const char *plan_;
  std::mutex mutex_;
  struct Seen {
    wire::Sighting sighting{};
    uint64_t gap = ~uint64_t{0}; // bytes from the allocation to the access that is nearest to it
    uint64_t in_front = 0;       // for an access below an allocation: the number of the allocation before it
  };
  std::map<Key, Seen> found_;
};

} // namespace luthier
