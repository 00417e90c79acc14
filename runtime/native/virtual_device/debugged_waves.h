// The waves of one launch under ROCm's debugger: they stop as the driver's trap handler stops them, and are written to
// the queue's context save area and read back.
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "debugging.h"
#include "execution.h"
#include "save_area.h"

namespace luthier {

// The queue of the launch, as the debugger knows it.
struct DebuggedQueue {
  Debugging *debugging = nullptr;
  const SaveFormat *format = nullptr; // null: the debugger does not know the device's waves
  uint64_t id = 0;
  uint64_t packets = 0; // that the ring has room for
  char *area = nullptr; // for saved contexts
  uint64_t area_size = 0, stack_size = 0;
};

class DebuggedWaves {
public:
  // `packet`: the number of the dispatch packet in the ring.
  DebuggedWaves(const DebuggedQueue &queue, const char *plan, uint64_t code, uint32_t packet, uint32_t lds);

  // The current wave is before an instruction: stop it if it has single-stepped, or if there is a trap instruction.
  void arrived(Worker &worker);
  // While no wave runs: write all waves to the save area; read back what the debugger has changed. Both throw `Failure`
  // if that is impossible.
  void save(Execution &execution);
  void load(Host &host);
  bool are_saved() const { return !saved_.empty(); }

private:
  // What the debugger sees of a wave, and the executor has no place for.
  struct State {
    uint64_t group = ~uint64_t{0}; // in the grid; another one: the wave is a new one
    uint32_t status = 0, trap_status = 0;
    uint64_t pc = 0;        // where it stopped
    uint64_t displaced = 0; // what is added to addresses while it executes a displaced copy of an instruction
    bool steps = false;
  };
  struct Saved {
    char *wave;
    Worker *worker;
    SavedPlaces places;
  };

  State &state_of(const char *wave, const Worker &worker);
  uint64_t pc_of(const char *wave) const;
  uint64_t record_at(uint64_t address) const;
  uint32_t word_at(uint64_t address) const;
  void set_up(char *wave, State &state, const Worker &worker) const;
  bool stop_at_trap(char *wave, State &state, uint64_t pc);
  void stop(char *wave, State &state, uint64_t pc, uint32_t trap, uint64_t exceptions);
  void write(const Saved &saved, const State &state, uint64_t pc) const;
  void read(const Saved &saved, Host &host);
  void go_on(const Saved &saved, State &state, uint64_t pc, Host &host);
  uint64_t original_of(uint64_t pc) const;

  const DebuggedQueue &queue_;
  const char *plan_;
  uint64_t code_;
  uint32_t packet_, lds_;
  std::vector<uint32_t> offsets_; // of records in the code
  std::mutex mutex_;              // of `states_`
  std::unordered_map<const char *, State> states_;
  std::vector<Saved> saved_;
};

} // namespace luthier
