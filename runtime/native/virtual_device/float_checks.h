// Exceptional floats of one launch: instructions that made them, and those that they went through.
#pragma once

#include <map>
#include <mutex>

#include "observer.h"
#include "service.h"
#include "sightings.h"

namespace luthier {

class FloatChecks final : public Observer {
public:
  FloatChecks(bool flow, const char *plan) : flow_(flow), plan_(plan) {}
  bool wants_accesses() const override { return false; }
  // From any worker's thread; `floats` is a layout::floats.
  void observe(const Instruction &instruction, const char *floats, uint32_t event) override;
  // Return what was found so far, and forget it.
  std::vector<wire::Sighting> take();

private:
  void note(const Instruction &instruction, const char *floats, wire::Sight kind, uint64_t lanes);

  const bool flow_;
  const char *plan_;
  std::mutex mutex_;
  std::map<std::pair<uint32_t, wire::Sight>, wire::Sighting> found_;
};

// Tells each observer what is its own.
class Observers final : public Observer {
public:
  Observers(Observer *accesses, Observer *floats, Sightings *bounds)
      : accesses_(accesses), floats_(floats), bounds_(bounds) {}
  bool wants_accesses() const override { return accesses_ && accesses_->wants_accesses(); }
  void observe(const Instruction &instruction, const char *what, uint32_t event) override {
    if (event == layout::EVENT_BEYOND_LDS) {
      if (bounds_)
        bounds_->beyond_lds(instruction, what);
      return;
    }
    (event == layout::EVENT_FLOATS ? floats_ : accesses_)->observe(instruction, what, event);
  }

private:
  Observer *accesses_, *floats_;
  Sightings *bounds_;
};

} // namespace luthier
