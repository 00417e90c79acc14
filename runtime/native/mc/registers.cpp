// LLVM's registers as 32-bit register units, one numbering for every target (docs/architecture.md).
#include "isa.h"
#include "unit_numbers.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;

namespace luthier {
namespace {

using namespace units;

constexpr int32_t kNone = -1;

struct File {
  StringRef name;
  int32_t first;
  unsigned limit;
};

/// Return the register file of which `name` is a member or tuple: `SGPR4`, but not `SGPR_NULL`.
const File *file_of(StringRef name) {
  static const File files[] = {
      {"SGPR", Sgpr, Sgprs}, {"VGPR", Vgpr, Vgprs}, {"AGPR", Agpr, Agprs}, {"TTMP", Ttmp, Ttmps}};
  for (const File &file : files)
    if (name.starts_with(file.name) && name.size() > file.name.size() && isDigit(name[file.name.size()]))
      return &file;
  return nullptr;
}

/// Return first unit and number of units of `VGPR0_VGPR1_VGPR2`; none if the numbers have gaps or are beyond the file.
RegisterUnits members(StringRef name, const File &file) {
  unsigned first = 0, count = 0;
  while (!name.empty()) {
    unsigned number = 0;
    if (!name.consume_front(file.name) || name.consumeInteger(10, number) || (count && number != first + count))
      return {kNone, 0, false};
    if (!count)
      first = number;
    ++count;
    name.consume_front("_");
  }
  return first + count > file.limit ? RegisterUnits{kNone, 0, false}
                                    : RegisterUnits{int32_t(file.first + first), int32_t(count), false};
}

RegisterUnits special(StringRef name, bool gfx9) {
  if (name.empty() || name.starts_with("SGPR_NULL"))
    return {kNone, 0, false};
  StringRef stem = name;
  const bool high = stem.consume_back("_HI");
  const bool whole = !high && !stem.consume_back("_LO");
  const int32_t pair = StringSwitch<int32_t>(stem)
                           .Case("VCC", VccLo)
                           .Case("EXEC", ExecLo)
                           .Case("FLAT_SCR", gfx9 ? FlatScratchSgpr : FlatScratchLo)
                           .Case("XNACK_MASK", gfx9 ? int32_t(XnackMask) : kNone)
                           .Default(kNone);
  if (pair != kNone)
    return {pair + high, whole ? 2 : 1, false};
  // Reading the "is zero" bits is reading the mask they summarise.
  return StringSwitch<RegisterUnits>(name)
      .Cases({"PC_REG", "FP_REG", "SP_REG", "PRIVATE_RSRC_REG"}, {kNone, 0, false})
      .Case("M0", {M0, 1, false})
      .Cases({"SCC", "SRC_SCC"}, {Scc, 1, false})
      .Case("MODE", {Mode, 1, false})
      .Case("SRC_VCCZ", {VccLo, 2, false})
      .Case("SRC_EXECZ", {ExecLo, 2, false})
      .Default({Untracked, 1, false});
}

} // namespace

RegisterUnits register_units(StringRef name, bool gfx9, unsigned vgprs) {
  const bool half = name.consume_back("_LO16") || name.consume_back("_HI16");
  // Names of one register for different processors.
  for (const StringRef ending : {"_ci", "_vi", "_gfx9plus", "_gfxpre11", "_gfx11plus"})
    if (name.consume_back(ending))
      break;
  const File *file = file_of(name);
  RegisterUnits units = file ? members(name, *file) : special(name, gfx9);
  if (units.first >= Vgpr && units.first<Agpr &&unsigned(units.first - Vgpr + units.count)> vgprs)
    units = {kNone, 0, false};
  units.half = half;
  return units;
}

} // namespace luthier
