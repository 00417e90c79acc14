#include "effects.h"

#include <algorithm>

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr int kSdwaDword = 6, kSdwaPreserve = 2; // dst_sel, dst_unused

Units hardware_register(int64_t encoded) {
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
bool is_whole(int64_t encoded) { return (encoded >> 6 & 0x1f) == 0 && (encoded >> 11 & 0x1f) == 31; }

void add_special(const EffectTable &table, const OpcodeForm &form, const Operands &operands, const Units &vectors,
                 const Units &everything, Effects &out) {
  const auto value = [&](int position) { return operands.value[position]; };
  switch (form.special) {
  case Special::kNone:
    break;
  case Special::kDpp:
    // A lane whose source lane is masked out or missing keeps its value, unless bound_ctrl says to read 0 instead.
    if (form.row < 0 || form.bank < 0 || form.bound < 0 || value(form.row) != 15 || value(form.bank) != 15 ||
        value(form.bound) == 0)
      out.kills &= kScalars;
    break;
  case Special::kSdwa:
    if (form.select >= 0 && value(form.select) != kSdwaDword &&
        (form.unused < 0 || value(form.unused) == kSdwaPreserve))
      out.kills &= kScalars;
    break;
  case Special::kGetHardware:
    out.reads |= hardware_register(form.hardware >= 0 ? value(form.hardware) : 0);
    break;
  case Special::kSetHardware: {
    const int64_t encoded = form.hardware >= 0 ? value(form.hardware) : 0;
    const Units units = hardware_register(encoded) - pair_of_units(ExecLo, 2); // programs cannot write STATUS
    out.writes |= units;
    if (is_whole(encoded)) {
      Units settable = pair_of_units(FlatScratchLo, 2);
      settable.add(Mode);
      out.kills |= units & settable;
    }
    break;
  }
  case Special::kRelativeVector:
  case Special::kRelativeScalar: {
    Units anywhere = vectors;
    if (form.special == Special::kRelativeScalar)
      anywhere = pair_of_units(0, VccLo + 2); // SGPRs and VCC
    out.reads |= anywhere | table.exec;       // LLVM leaves M0 and EXEC out of some
    out.reads.add(M0);
    out.writes |= anywhere;
    out.kills -= anywhere;
    break;
  }
  case Special::kCoordinates:
    if (const int first = table.first_unit[size_t(operands.reg(form.address))]; first >= Vgpr && first < kAgpr)
      out.reads.add(first, std::min(form.coordinates, kAgpr - first));
    break;
  case Special::kEverything:
    out.reads |= everything;
    break;
  }
}

uint8_t exec_change(const EffectTable &table, const OpcodeForm &form, const Operands &operands, const Units &writes) {
  const Units target = writes & pair_of_units(ExecLo, 2);
  const bool whole = !table.wide || (target == pair_of_units(ExecLo, 2) && !form.half_of_exec);
  const auto is_target = [&](size_t source) {
    return form.reads.size() > source && table.masks[size_t(operands.reg(form.reads[source]))] == target;
  };
  uint8_t change = form.lanes;
  if (form.lanes_if_ones >= 0 && !form.reads.empty() && operands.reg(form.reads[0]) == 0 &&
      operands.value[form.reads[0]] == -1)
    change = uint8_t(form.lanes_if_ones);
  else if (form.lanes_if_first >= 0 && is_target(0))
    change = uint8_t(form.lanes_if_first);
  else if (form.lanes_if_second >= 0 && is_target(1))
    change = uint8_t(form.lanes_if_second);
  return whole ? change : change | kUnchangedLanes; // the lanes of the other half stay as they are
}

} // namespace

EffectTable::EffectTable(std::vector<int32_t> first, std::vector<int32_t> count, std::vector<uint8_t> halves,
                         bool wave64)
    : first_unit(std::move(first)), unit_count(std::move(count)), masks(first_unit.size()), half(std::move(halves)),
      wide(wave64), exec(pair_of_units(ExecLo, wave64 ? 2 : 1)) {
  for (size_t i = 0; i < first_unit.size(); ++i) {
    first_unit[i] = to_set(first_unit[i]);
    if (first_unit[i] >= 0 && first_unit[i] != Untracked)
      masks[i].add(first_unit[i], unit_count[i]);
  }
}

void effects_of(const EffectTable &table, const OpcodeForm &form, const Operands &operands, const Units &vectors,
                const Units &everything, Effects &out) {
  out.reads = form.implicit_reads;
  out.writes = form.implicit_writes;
  out.kills = form.implicit_kills;
  for (const uint8_t position : form.reads)
    out.reads |= table.masks[size_t(operands.reg(position))];
  for (const uint8_t position : form.full_writes) {
    const size_t reg = size_t(operands.reg(position));
    out.writes |= table.masks[reg];
    if (!table.half[reg])
      out.kills |= table.masks[reg];
  }
  // The status behind the data is written where an access fails, and the data then perhaps not.
  for (const int position : {form.failure, form.warning})
    if (position >= 0 && operands.value[position])
      out.kills &= kScalars;
  for (const uint8_t position : form.partial_writes)
    out.writes |= table.masks[size_t(operands.reg(position))];
  if (form.special != Special::kNone)
    add_special(table, form, operands, vectors, everything, out);
  out.lanes = out.writes & table.exec ? exec_change(table, form, operands, out.writes) : kUnchangedLanes;
  out.cross_reads = form.cross_lane ? out.reads : out.reads & kScalars;
  out.hard_kills = form.ignores_exec ? out.kills : out.kills & kScalars;
}

} // namespace luthier::LUTHIER_FLOW
