// Register units that an instruction reads and writes, and in which lanes.
#pragma once

#include "units.h"

#include <memory>
#include <vector>

namespace luthier::LUTHIER_FLOW {

/// How lanes' activity may change; luthier.lifting.instructions.semantics.LaneChange.
enum Lanes : uint8_t { StaysActive = 1, BecomesInactive = 2, BecomesActive = 4, StaysInactive = 8 };
constexpr uint8_t UnchangedLanes = StaysActive | StaysInactive;

/// The registers of one instruction; luthier.lifting.instructions.effects.Effects says what each means.
struct Effects {
  Units reads, crossReads, writes, kills, hardKills;
  uint8_t lanes = UnchangedLanes;
};

/// Property that each instruction of an opcode has to be examined for.
enum class Special : uint8_t {
  None,
  Dpp,
  Sdwa,
  GetHardware,
  SetHardware,
  RelativeVector,
  RelativeScalar,
  Coordinates,
  Everything
};

/// Relation of the result of an operation to lane masks.
enum class MaskKind : uint8_t { Other, Logic, Save, Write, Select, Keep, Compare, CompareExec, PutLane, GetLane };

/// What is the same for every instruction of one opcode, told by luthier.lifting.instructions.effects. Positions are of
/// operands, -1 where there is none.
struct OpcodeForm {
  int operands = 0; ///< how many an instruction has at least
  std::vector<uint8_t> reads, fullWrites, partialWrites;
  Units implicitReads, implicitWrites, implicitKills;
  bool crossLane = false, ignoresExec = false, writesAnywhere = false, stores = false;
  Special special = Special::None;
  int row = -1, bank = -1, bound = -1;       ///< of DPP
  int select = -1, unused = -1;              ///< of SDWA's destination
  int hardware = -1;                         ///< of s_getreg and s_setreg
  int failure = -1, warning = -1;            ///< tfe and lwe of images: with one the result's last register is a status
  int address = -1;                          ///< of an image's coordinates, the first of which alone it names
  int coordinates = 0;                       ///< registers in a row that these have at most
  uint8_t lanes = 0;                         ///< of a write of EXEC, unless one of the next three says more
  int lanesIfOnes = -1;                      ///< where the first source is all ones
  int lanesIfFirst = -1, lanesIfSecond = -1; ///< where that source is EXEC itself
  bool halfOfExec = false;                   ///< LLVM gives it all of EXEC though it writes 32 bits
  MaskKind mask = MaskKind::Other;
  uint8_t table = 0;    ///< truth table of a bitwise operation
  uint8_t width = 1;    ///< 32-bit registers of a mask operand
  int8_t emptyWay = -1; ///< the way out of a branch on EXEC on which no lane is active: 1 taken, 0 not
};

/// The instructions of one processor at one wave size.
struct EffectTable {
  /// @param firstUnit by LLVM register number, -1 where there is none
  EffectTable(std::vector<int32_t> firstUnit, std::vector<int32_t> unitCount, std::vector<uint8_t> half, bool wide);

  const OpcodeForm *form(int32_t opcode) const {
    return opcode >= 0 && size_t(opcode) < forms.size() ? forms[size_t(opcode)].get() : nullptr;
  }

  std::vector<int32_t> firstUnit; ///< by LLVM register number, as a member of sets; -1 where there is none
  std::vector<Units> masks;       ///< by LLVM register number
  std::vector<uint8_t> half;      ///< whether it is a 16-bit half
  bool wide;                      ///< whether waves have 64 lanes
  Units exec;                     ///< units of EXEC that have lanes
  std::vector<std::unique_ptr<OpcodeForm>> forms; ///< by opcode, null until it is told
};

/// Borrowed columns of instructions whose opcodes all have a form.
struct Code {
  const int32_t *opcode;
  const int32_t *start;
  const uint8_t *kind;
  const int64_t *value;
};

/// One instruction's operands.
struct Operands {
  const uint8_t *kind;
  const int64_t *value;
  int count;

  /// LLVM register number, 0 where it is no register.
  int64_t reg(int position) const { return kind[position] == 1 ? value[position] : 0; }
};

inline Operands operandsOf(const Code &code, int index) {
  const int32_t first = code.start[index];
  return {code.kind + first, code.value + first, code.start[index + 1] - first};
}

/// Effects of an instruction.
///
/// @param vectors units that operations with computed register numbers may touch
/// @param everything the same and every scalar that is followed
void effectsOf(const EffectTable &table, const OpcodeForm &form, const Operands &operands, const Units &vectors,
               const Units &everything, Effects &out);

} // namespace luthier::LUTHIER_FLOW
