// Register units that an instruction reads and writes, and in which lanes.
#pragma once

#include "units.h"

#include <memory>
#include <vector>

namespace luthier::LUTHIER_FLOW {

/// Changes of the activity of lanes; luthier.lifting.instructions.semantics.LaneChange.
enum Lanes : uint8_t { kStaysActive = 1, kBecomesInactive = 2, kBecomesActive = 4, kStaysInactive = 8 };
constexpr uint8_t kUnchangedLanes = kStaysActive | kStaysInactive;

/// The registers of one instruction; luthier.lifting.instructions.effects.Effects explains each.
struct Effects {
  Units reads, cross_reads, writes, kills, hard_kills;
  uint8_t lanes = kUnchangedLanes;
};

/// A property for which each instruction of an opcode must be examined.
enum class Special : uint8_t {
  kNone,
  kDpp,
  kSdwa,
  kGetHardware,
  kSetHardware,
  kRelativeVector,
  kRelativeScalar,
  kCoordinates,
  kEverything
};

/// Relation of the result of an operation to lane masks.
enum class MaskKind : uint8_t {
  kOther,
  kLogic,
  kSave,
  kWrite,
  kSelect,
  kKeep,
  kCompare,
  kCompareExec,
  kPutLane,
  kGetLane
};

/// The common properties of all instructions of one opcode, from luthier.lifting.instructions.effects. Positions are
/// those of operands, -1 if there is none.
struct OpcodeForm {
  int operands = 0; ///< the least number of an instruction
  std::vector<uint8_t> reads, full_writes, partial_writes;
  Units implicit_reads, implicit_writes, implicit_kills;
  bool cross_lane = false, ignores_exec = false, writes_anywhere = false, stores = false;
  Special special = Special::kNone;
  int row = -1, bank = -1, bound = -1; ///< of DPP
  int select = -1, unused = -1;        ///< of SDWA's destination
  int hardware = -1;                   ///< of s_getreg and s_setreg
  int failure = -1, warning = -1;      ///< tfe and lwe of images: with one the result's last register is a status
  int address = -1;                    ///< of an image's coordinates, of which it names only the first
  int coordinates = 0;                 ///< the largest number of consecutive registers of these
  uint8_t lanes = 0;                   ///< of a write of EXEC, unless one of the next three says more
  int lanes_if_ones = -1;              ///< where the first source is all ones
  int lanes_if_first = -1, lanes_if_second = -1; ///< where that source is EXEC itself
  bool half_of_exec = false;                     ///< LLVM gives it all of EXEC though it writes 32 bits
  MaskKind mask = MaskKind::kOther;
  uint8_t table = 0;     ///< truth table of a bitwise operation
  uint8_t width = 1;     ///< 32-bit registers of a mask operand
  int8_t empty_way = -1; ///< the way out of a branch on EXEC on which no lane is active: 1 taken, 0 not
};

/// The instructions of one processor at one wave size.
struct EffectTable {
  /// @param first_unit by LLVM register number, -1 where there is none
  EffectTable(std::vector<int32_t> first_unit, std::vector<int32_t> unit_count, std::vector<uint8_t> half, bool wide);

  const OpcodeForm *form(int32_t opcode) const {
    return opcode >= 0 && size_t(opcode) < forms.size() ? forms[size_t(opcode)].get() : nullptr;
  }

  std::vector<int32_t> first_unit; ///< by LLVM register number, as a member of sets; -1 where there is none
  std::vector<int32_t> unit_count; ///< by LLVM register number
  std::vector<Units> masks;        ///< by LLVM register number
  std::vector<uint8_t> half;       ///< whether it is a 16-bit half
  bool wide;                       ///< whether waves have 64 lanes
  Units exec;                      ///< units of EXEC that have lanes
  std::vector<std::unique_ptr<OpcodeForm>> forms; ///< by opcode, null until it is set
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

inline Operands operands_of(const Code &code, int index) {
  const int32_t first = code.start[index];
  return {code.kind + first, code.value + first, code.start[index + 1] - first};
}

/// Effects of an instruction.
///
/// @param vectors units that operations with computed register numbers may touch
/// @param everything the same and every scalar that is followed
void effects_of(const EffectTable &table, const OpcodeForm &form, const Operands &operands, const Units &vectors,
                const Units &everything, Effects &out);

} // namespace luthier::LUTHIER_FLOW
