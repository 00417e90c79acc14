// Accesses of one launch beyond the LDS of their work-groups.
#pragma once

#include "value_checks.h"

namespace luthier {

class LdsChecks final : public ValueChecks {
public:
  // From any worker's thread; `access` is a layout::access of the lanes that are outside.
  void observe(const Instruction &instruction, const char *access, uint32_t event) override;
};

} // namespace luthier
