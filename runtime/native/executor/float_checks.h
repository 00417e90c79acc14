// Exceptional floats of one launch: instructions that made them, and those that they went through.
#pragma once

#include <map>
#include <mutex>

#include "observer.h"
#include "ordering.h"

namespace luthier {

class FloatChecks final : public Observer {
public:
  explicit FloatChecks(bool flow) : flow_(flow) {}
  // A part of the launch begins, of a kernel with this plan.
  void next_part(const Part &part, const char *plan) {
    part_ = part;
    plan_ = plan;
  }
  bool wants_accesses() const override { return false; }
  // From any worker's thread; `floats` is a layout::floats.
  void observe(const Instruction &instruction, const char *floats, uint32_t event) override;
  // Return what was found so far, and forget it.
  std::vector<wire::Sighting> take();

private:
  void note(const Instruction &instruction, const char *floats, wire::Sight kind, uint64_t lanes);

  const bool flow_;
  Part part_{};
  const char *plan_ = nullptr;
  std::mutex mutex_;
  std::map<std::pair<uint32_t, wire::Sight>, wire::Sighting> found_;
};

} // namespace luthier
