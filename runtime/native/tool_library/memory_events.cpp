// The memory that the program gets from HIP, for tools. The library that stands before HIP's functions
// (runtime/native/sanitizer) calls these; therefore this library is loaded before the program's own (LD_PRELOAD).
#include <array>
#include <atomic>
#include <initializer_list>

#include "events.h"

namespace luthier {

namespace {

// Functions in the order in which they are reported; their arguments are addresses and sizes.
enum Function : uint32_t { kAllocated, kFreed, kForgotten, kComplained, kFunctions };

struct Memory {
  EventLog &log;
  std::array<bool, kFunctions> wanted{};
  std::array<uint32_t, kFunctions> numbers{};
};

std::atomic<Memory *> memory = nullptr;

void tell(Function function, std::initializer_list<uint64_t> values) {
  Memory *const current = memory;
  if (!current || !current->wanted[function] || !current->log.is_own())
    return;
  current->log.enter(current->numbers[function], {values.begin(), values.size()});
}

} // namespace

void tell_of_memory(EventLog &log, const std::vector<std::string> &patterns) {
  const std::array<ApiFunction, kFunctions> functions{{
      {false, "memory", "allocated", {{false, "address"}, {false, "size"}, {false, "reserved"}}, {}},
      {false, "memory", "freed", {{false, "address"}}, {}},
      {false, "memory", "forgotten", {{false, "address"}}, {}},
      {false, "memory", "complained", {{false, "kind"}, {false, "address"}, {false, "base"}, {false, "size"}}, {}},
  }};
  auto *made = new Memory{log}; // never destroyed: programs free memory while they end
  for (uint32_t function = 0; function < kFunctions; ++function) {
    made->wanted[function] = EventLog::wanted(patterns, std::string(functions[function].name).c_str());
    if (made->wanted[function])
      made->numbers[function] = log.add({functions[function]});
  }
  memory = made;
}

} // namespace luthier

extern "C" {

void luthier_tools_allocated(uint64_t address, uint64_t size, uint64_t reserved) {
  luthier::tell(luthier::kAllocated, {address, size, reserved});
}
void luthier_tools_freed(uint64_t address) { luthier::tell(luthier::kFreed, {address}); }
void luthier_tools_forget(uint64_t address) { luthier::tell(luthier::kForgotten, {address}); }
void luthier_tools_complain(uint64_t kind, uint64_t address, uint64_t base, uint64_t size) {
  luthier::tell(luthier::kComplained, {kind, address, base, size});
}

} // extern "C"
