// Undefined values of one launch that decide something: where it goes on, what it accesses, which lanes are active.
#pragma once

#include <map>
#include <mutex>

#include "observer.h"
#include "ordering.h"

namespace luthier {

class DecisionChecks final : public Observer {
public:
  // A part of the launch begins, of a kernel with this plan.
  void next_part(const Part &part, const char *plan) {
    part_ = part;
    plan_ = plan;
  }
  bool wants_accesses() const override { return false; }
  // From any worker's thread; `decided` is a layout::decided.
  void observe(const Instruction &instruction, const char *decided, uint32_t event) override;
  // Return what was found so far, and forget it.
  std::vector<wire::Sighting> take();

private:
  Part part_{};
  const char *plan_ = nullptr;
  std::mutex mutex_;
  std::map<std::pair<uint32_t, wire::Sight>, wire::Sighting> found_;
};

} // namespace luthier
