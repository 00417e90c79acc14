// The common part of checks of values in one launch: the instructions that met a kind of value, the number of lanes,
// and the first wave.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <tuple>

#include "observer.h"
#include "wire.h"

namespace luthier {

class ValueChecks : public Observer {
public:
  // Begin to check a launch, by a plan of its kernel; called before work-groups run.
  virtual void begin(const char *plan) { plan_ = plan; }
  bool wants_accesses() const override { return false; }
  // Return and forget the findings so far.
  std::vector<wire::Sighting> take();

protected:
  // Note lanes at an instruction. May be called on any worker's thread. `describe` completes the sighting of the first
  // wave, in the order of work-groups. Different values of `side` are different findings.
  void note(const Instruction &instruction, wire::FindingKind kind, uint64_t lanes,
            const std::function<void(wire::Sighting &)> &describe, unsigned side = 0);

  const char *plan() const { return plan_; }

private:
  const char *plan_ = nullptr;
  std::mutex mutex_;
  std::map<std::tuple<uint32_t, wire::FindingKind, unsigned>, wire::Sighting> found_;
};

} // namespace luthier
