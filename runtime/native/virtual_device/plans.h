// Plans of the kernels in memory.
#pragma once

#include <mutex>
#include <unordered_map>

#include "memory.h"
#include "service.h"

namespace luthier {

class Plans {
public:
  Plans(Service &service, const Memory &memory) : service_(service), memory_(memory) {}

  // The plan (layout::plan) of the kernel whose descriptor is at an address. Throws `Failure`.
  const char *find(unsigned gpu, unsigned node, uint64_t kernel);
  // Return the record by which a kernel goes on at an address in another object; Host::kNowhere if there is none.
  uint64_t find_outside(unsigned gpu, const char *plan, uint64_t code, uint64_t address);

private:
  const char *make(unsigned gpu, uint64_t kernel);
  static bool is_current(const char *plan, uint64_t kernel);

  Service &service_;
  const Memory &memory_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, const char *> plans_;
};

} // namespace luthier
