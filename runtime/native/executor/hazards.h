// Hazards on the path that each wave takes.
//
// The effect of instructions on the state of a wave is an automaton (luthier/emulator/inspection/hazards.py): for a
// state and a record, it gives the next state and the hazards. Python computes the transitions of a run of instructions
// when the first of them is needed; here they are kept and followed. So this check uses the same model as that of all
// paths.
#pragma once

#include <unordered_set>
#include <vector>

#include "grid.h"

namespace luthier {

class Hazards {
public:
  // Prepare for a launch; keep transitions if the automaton is the same and records were not rewritten.
  void begin(const char *watch, unsigned waves, const char *group);
  bool active() const { return follow_ != nullptr; }

  // A wave is about to execute an instruction.
  void before(unsigned number, uint32_t record) {
    Wave &wave = waves_[number];
    // Only an endless branch follows itself. Any other instruction that comes twice was not executed the first time.
    if (wave.last == record)
      return;
    wave.last = record;
    const uint64_t next = transition(wave.state, record);
    if (__builtin_expect(next >> layout::FOLLOW_SHIFT != 0, 0) && special(wave, number, record, next))
      return;
    wave.state = static_cast<uint32_t>(next);
    wave.history[wave.executed++ % layout::LOOK_BACK] = record;
  }

private:
  struct Wave {
    uint32_t state = 0, last = ~0u;
    uint64_t executed = 0;
    uint32_t history[layout::LOOK_BACK];
  };
  using Transition = layout::Transition;
  static constexpr Transition kNone{~0ull, 0};

  uint64_t transition(uint32_t state, uint32_t record) {
    const uint64_t key = uint64_t{state} << layout::FOLLOW_SHIFT | record;
    for (uint64_t at = key * 0x9E3779B97F4A7C15 >> shift_;; at = (at + 1) & (table_.size() - 1)) {
      const Transition &transition = table_[at];
      if (__builtin_expect(transition.key == key, 1))
        return transition.next;
      if (transition.key == kNone.key)
        return learn(key);
    }
  }
  uint64_t learn(uint64_t key);
  void insert(const Transition &made);
  void resize(unsigned bits);
  void forget(const std::unordered_set<uint32_t> &records);
  bool special(Wave &wave, unsigned number, uint32_t record, uint64_t next);
  uint32_t producer_of(const Wave &wave, const char *hit) const;

  using Follow = uint64_t (*)(const char *watch, uint32_t state, uint32_t record, Transition *made);
  Follow follow_ = nullptr;
  const char *watch_ = nullptr, *group_ = nullptr;
  uint64_t automaton_ = 0;
  uint64_t forgotten_ = 0; // records whose transitions were forgotten
  std::vector<Wave> waves_;
  std::vector<Transition> table_;
  unsigned shift_ = 64;
  size_t known_ = 0;
  std::unordered_set<uint64_t> seen_;
};

} // namespace luthier
