// Exceptional floats of one launch: instructions that produced them, and those that propagated them.
#pragma once

#include "value_checks.h"

namespace luthier {

class FloatChecks final : public ValueChecks {
public:
  explicit FloatChecks(bool flow) : flow_(flow) {}
  // From any worker's thread; `floats` is a layout::floats.
  void observe(const Instruction &instruction, const char *floats, uint32_t event) override;

private:
  const bool flow_;
};

} // namespace luthier
