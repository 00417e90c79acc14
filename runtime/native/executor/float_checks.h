// Exceptional floats of one launch: instructions that produced them, and those that propagated them.
#pragma once

#include <optional>

#include "value_checks.h"

namespace luthier {

class FloatChecks final : public ValueChecks {
public:
  // With the number of a launch of a process, and `flow`, the origins of NaN are kept.
  explicit FloatChecks(bool flow, std::optional<uint64_t> launch = std::nullopt)
      : flow_(flow), launch_(flow ? launch : std::nullopt) {}
  // From any worker's thread; `what` is a layout::floats, for EVENT_FOLLOWED a layout::access.
  void observe(const Instruction &instruction, const char *what, uint32_t event) override;

private:
  const bool flow_;
  const std::optional<uint64_t> launch_;
};

} // namespace luthier
