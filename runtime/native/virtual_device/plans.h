// Which plan belongs to a kernel in memory.
#pragma once

#include <mutex>
#include <unordered_map>

#include "memory.h"
#include "service.h"

namespace luthier {

class Plans {
public:
  Plans(Service &service, const Memory &memory) : service_(service), memory_(memory) {}

  // What the debugger is told of loaded code objects: an r_debug whose names are URIs; may be null.
  void set_loaded(const void *r_debug) { r_debug_ = r_debug; }

  // The plan (layout::plan) of the kernel whose descriptor is at an address. Throws `Failure`.
  const char *find(unsigned gpu, unsigned node, uint64_t kernel);

private:
  const char *make(unsigned gpu, unsigned node, uint64_t kernel);
  static bool is_current(const char *plan, uint64_t kernel);

  Service &service_;
  const Memory &memory_;
  const void *r_debug_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<uint64_t, const char *> plans_;
};

}  // namespace luthier
