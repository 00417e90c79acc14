// Atomics of one launch that hardware may not perform, because their memory is fine-grained.
#pragma once

#include <memory>

#include "ranges.h"
#include "value_checks.h"

namespace luthier {

class FineGrainedChecks final : public ValueChecks {
public:
  // Begin to check a launch; `ranges`: the fine-grained memory that there is.
  void begin(const char *plan, std::shared_ptr<const FineRanges> ranges);
  // From any worker's thread; `access` is a layout::access of lanes at addresses of the host.
  void observe(const Instruction &instruction, const char *access, uint32_t event) override;

private:
  using ValueChecks::begin;

  std::shared_ptr<const FineRanges> ranges_;
};

} // namespace luthier
