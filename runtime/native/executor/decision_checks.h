// Undefined values of one launch that decide a branch, the address of an access, or which lanes are active; values of
// inactive lanes that do so, or are stored; masks of lanes that lose their upper half.
#pragma once

#include <optional>

#include "value_checks.h"

namespace luthier {

class DecisionChecks final : public ValueChecks {
public:
  // With the number of a launch of a process, origins of undefined values are kept.
  explicit DecisionChecks(std::optional<uint64_t> launch = std::nullopt) : launch_(launch) {}
  void begin(const char *plan) override;
  // From any worker's thread; `decided` is a layout::decided.
  void observe(const Instruction &instruction, const char *decided, uint32_t event) override;

private:
  // Return the last instruction of the wave that took a value of an inactive lane; nullopt: none did.
  std::optional<uint32_t> taker_of(const char *wave);

  const std::optional<uint64_t> launch_;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> takers_; // by work-group and wave
};

} // namespace luthier
