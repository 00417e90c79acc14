#include "effects.h"

#include <algorithm>

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr int SdwaDword = 6, SdwaPreserve = 2; // dst_sel, dst_unused

Units hardwareRegister(int64_t encoded) {
  Units units;
  switch (encoded & 0x3f) { // LLVM AMDGPUOperandSyntax, "hwreg"
  case 1:
    units.add(Mode);
    break;
  case 2: // STATUS: SCC, and whether VCC and EXEC are zero
  case 4: // STATE_PRIV of GFX12, which has some of those bits
    units.add(Scc);
    units.add(VccLo, 2);
    units.add(ExecLo, 2);
    break;
  case 20:
    units.add(FlatScratchLo);
    break;
  case 21:
    units.add(FlatScratchHi);
    break;
  }
  return units;
}

/// Bits 5:0 are the register's number, 10:6 the first bit, 15:11 the number of bits minus one.
bool isWhole(int64_t encoded) { return (encoded >> 6 & 0x1f) == 0 && (encoded >> 11 & 0x1f) == 31; }

void addSpecial(const EffectTable &table, const OpcodeForm &form, const Operands &operands, const Units &vectors,
                const Units &everything, Effects &out) {
  const auto value = [&](int position) { return operands.value[position]; };
  switch (form.special) {
  case Special::None:
    break;
  case Special::Dpp:
    // A lane whose source lane is masked out or missing keeps its value, unless bound_ctrl says to read 0 instead.
    if (form.row < 0 || form.bank < 0 || form.bound < 0 || value(form.row) != 15 || value(form.bank) != 15 ||
        value(form.bound) == 0)
      out.kills &= Scalars;
    break;
  case Special::Sdwa:
    if (form.select >= 0 && value(form.select) != SdwaDword && (form.unused < 0 || value(form.unused) == SdwaPreserve))
      out.kills &= Scalars;
    break;
  case Special::GetHardware:
    out.reads |= hardwareRegister(form.hardware >= 0 ? value(form.hardware) : 0);
    break;
  case Special::SetHardware: {
    const int64_t encoded = form.hardware >= 0 ? value(form.hardware) : 0;
    const Units units = hardwareRegister(encoded) - pairOfUnits(ExecLo, 2); // programs cannot write STATUS
    out.writes |= units;
    if (isWhole(encoded)) {
      Units settable = pairOfUnits(FlatScratchLo, 2);
      settable.add(Mode);
      out.kills |= units & settable;
    }
    break;
  }
  case Special::RelativeVector:
  case Special::RelativeScalar: {
    Units anywhere = vectors;
    if (form.special == Special::RelativeScalar)
      anywhere = pairOfUnits(0, VccLo + 2); // SGPRs and VCC
    out.reads |= anywhere | table.exec;     // LLVM leaves M0 and EXEC out of some
    out.reads.add(M0);
    out.writes |= anywhere;
    out.kills -= anywhere;
    break;
  }
  case Special::Coordinates:
    if (const int first = table.firstUnit[size_t(operands.reg(form.address))]; first >= Vgpr && first < Agpr)
      out.reads.add(first, std::min(form.coordinates, Agpr - first));
    break;
  case Special::Everything:
    out.reads |= everything;
    break;
  }
}

uint8_t execChange(const EffectTable &table, const OpcodeForm &form, const Operands &operands, const Units &writes) {
  const Units target = writes & pairOfUnits(ExecLo, 2);
  const bool whole = !table.wide || (target == pairOfUnits(ExecLo, 2) && !form.halfOfExec);
  const auto isTarget = [&](size_t source) {
    return form.reads.size() > source && table.masks[size_t(operands.reg(form.reads[source]))] == target;
  };
  uint8_t change = form.lanes;
  if (form.lanesIfOnes >= 0 && !form.reads.empty() && operands.reg(form.reads[0]) == 0 &&
      operands.value[form.reads[0]] == -1)
    change = uint8_t(form.lanesIfOnes);
  else if (form.lanesIfFirst >= 0 && isTarget(0))
    change = uint8_t(form.lanesIfFirst);
  else if (form.lanesIfSecond >= 0 && isTarget(1))
    change = uint8_t(form.lanesIfSecond);
  return whole ? change : change | UnchangedLanes; // the lanes of the other half stay as they are
}

} // namespace

EffectTable::EffectTable(std::vector<int32_t> first, std::vector<int32_t> count, std::vector<uint8_t> halves,
                         bool wave64)
    : firstUnit(std::move(first)), masks(firstUnit.size()), half(std::move(halves)), wide(wave64),
      exec(pairOfUnits(ExecLo, wave64 ? 2 : 1)) {
  for (size_t i = 0; i < firstUnit.size(); ++i) {
    firstUnit[i] = toSet(firstUnit[i]);
    if (firstUnit[i] >= 0 && firstUnit[i] != Untracked)
      masks[i].add(firstUnit[i], count[i]);
  }
}

void effectsOf(const EffectTable &table, const OpcodeForm &form, const Operands &operands, const Units &vectors,
               const Units &everything, Effects &out) {
  out.reads = form.implicitReads;
  out.writes = form.implicitWrites;
  out.kills = form.implicitKills;
  for (const uint8_t position : form.reads)
    out.reads |= table.masks[size_t(operands.reg(position))];
  for (const uint8_t position : form.fullWrites) {
    const size_t reg = size_t(operands.reg(position));
    out.writes |= table.masks[reg];
    if (!table.half[reg])
      out.kills |= table.masks[reg];
  }
  // The status behind the data is written where an access fails, and the data then perhaps not.
  for (const int position : {form.failure, form.warning})
    if (position >= 0 && operands.value[position])
      out.kills &= Scalars;
  for (const uint8_t position : form.partialWrites)
    out.writes |= table.masks[size_t(operands.reg(position))];
  if (form.special != Special::None)
    addSpecial(table, form, operands, vectors, everything, out);
  out.lanes = out.writes & table.exec ? execChange(table, form, operands, out.writes) : UnchangedLanes;
  out.crossReads = form.crossLane ? out.reads : out.reads & Scalars;
  out.hardKills = form.ignoresExec ? out.kills : out.kills & Scalars;
}

} // namespace luthier::LUTHIER_FLOW
