// Plans of the kernels in memory.
#pragma once

#include <array>
#include <mutex>
#include <unordered_map>

#include "debugging.h"
#include "memory.h"
#include "program_memory.h"
#include "service.h"

namespace luthier {

class Plans {
public:
  Plans(Service &service, const Memory &memory, const Debugging &debugging)
      : service_(service), memory_(memory), debugging_(debugging) {}

  // Return the plan (layout::plan) of the kernel whose descriptor is at an address. Throws `Failure`.
  const char *find(unsigned gpu, unsigned node, uint64_t kernel);
  // Return the record at which a kernel continues at an address in another object; Host::kNowhere if there is none.
  uint64_t find_outside(unsigned gpu, const char *plan, uint64_t code, uint64_t address);

private:
  static constexpr size_t kDescriptorSize = 64;
  // A plan, and the descriptor in memory that it was made for.
  struct Made {
    const char *plan = nullptr;
    uint64_t module = 0; // where its code object is loaded whose variables are known; 0: none are
    std::array<char, kDescriptorSize> descriptor{};
  };

  void make(Made &made, unsigned gpu, unsigned node, uint64_t kernel);
  void know(Made &made, uint64_t module, const std::vector<wire::Bounds> &variables) const;
  bool is_same(const char *bytes, const char *copy, uint64_t size) const;
  bool is_current(const char *plan, unsigned node, uint64_t kernel) const;

  Service &service_;
  const Memory &memory_;
  const Debugging &debugging_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Made> plans_;
};

} // namespace luthier
