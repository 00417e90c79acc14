// Undefined values of one launch that decide a branch, the address of an access, or which lanes are active.
#pragma once

#include "value_checks.h"

namespace luthier {

class DecisionChecks final : public ValueChecks {
public:
  // From any worker's thread; `decided` is a layout::decided.
  void observe(const Instruction &instruction, const char *decided, uint32_t event) override;
};

} // namespace luthier
