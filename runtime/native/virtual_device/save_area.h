// The context save area of a queue, in which ROCm's debugger finds and changes the registers of waves.
//
// It begins with a header. Between the offsets in the header are the control stack, whose words describe the waves, and
// the states of waves, the first of which is at the end. Source of the layout: ROCdbgapi (src/architecture.cpp,
// gfx9_architecture_t and its subclasses), which reads what the driver's trap handler writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace luthier {

// Instructions of GFX9: s_trap 0, whose low byte is the number of the trap, and s_endpgm 0.
constexpr uint32_t kTrapInstruction = 0xBF920000, kProgramEnd = 0xBF810000;
// Return the number of the trap that an instruction causes; 0 if it is none.
constexpr uint32_t trap_of(uint32_t instruction) {
  return (instruction & ~0xFFu) == kTrapInstruction ? instruction & 0xFF : 0;
}

// How the waves of a generation are saved.
struct SaveFormat {
  // Return the format of a target, such as gfx90a:xnack-; null if it is not known.
  static const SaveFormat *of(const std::string &target);

  bool parks;            // the address of a stopped wave is in TTMP7 and TTMP11, because it cannot halt anywhere
  bool packet_in_ttmp11; // and not in TTMP6
  uint32_t after_step;   // bit of TRAPSTS: the wave stopped after one instruction
};

// The places of one wave's registers.
struct SavedPlaces {
  char *lds = nullptr; // of the first wave of a work-group
  char *ttmps, *hardware, *sgprs, *agprs, *vgprs;
};

// Words of `hardware`.
enum SavedWord : unsigned {
  kM0,
  kPcLow,
  kPcHigh,
  kExecLow,
  kExecHigh,
  kStatus,
  kTrapStatus,
  kXnackLow,
  kXnackHigh,
  kMode
};

class SaveArea {
public:
  // `stack_size`: bytes of the control stack at its beginning.
  SaveArea(char *area, uint64_t size, uint64_t stack_size) : area_(area), size_(size), stack_size_(stack_size) {}

  // What waves of one launch have.
  struct Registers {
    uint32_t vgprs = 0, agprs = 0, lds = 0; // the latter in bytes
  };
  // Describe a launch by the waves of each of its work-groups, and return the places of all waves. Throws `Failure` if
  // they do not fit.
  std::vector<SavedPlaces> place(const Registers &used, const std::vector<uint32_t> &groups);

private:
  char *area_;
  uint64_t size_, stack_size_;
};

} // namespace luthier
