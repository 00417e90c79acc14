// LLVM's registers as 32-bit register units, one numbering for every target (docs/architecture.md).
#include "isa.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;

namespace luthier {
namespace {

// First unit of each file and of each special register; keep in step with luthier.isa.Unit.
enum Unit : int32_t {
  Sgpr = 0,
  FlatScratchSgpr = 102,
  XnackMask = 104,
  Vcc = 106,
  Ttmp = 108,
  M0 = 124,
  Exec = 126,
  Scc = 128,
  Mode = 129,
  FlatScratch = 130,
  Other = 132,
  Vgpr = 256,
  Agpr = 512,
  None = -1,
};

struct File {
  StringRef name;
  int32_t first;
  unsigned limit;
};

/// The file that `name` is a member or tuple of: `SGPR4`, but not `SGPR_NULL`.
const File *fileOf(StringRef name) {
  static const File files[] = {{"SGPR", Sgpr, 106}, {"VGPR", Vgpr, 256}, {"AGPR", Agpr, 256}, {"TTMP", Ttmp, 16}};
  for (const File &file : files)
    if (name.starts_with(file.name) && name.size() > file.name.size() && isDigit(name[file.name.size()]))
      return &file;
  return nullptr;
}

/// `VGPR0_VGPR1_VGPR2`: first unit and number of units; none where the numbers have gaps or lie beyond the file (some
/// processors after GFX12 have more VGPRs than units are given to).
RegisterUnits members(StringRef name, const File &file) {
  unsigned first = 0, count = 0;
  while (!name.empty()) {
    unsigned number = 0;
    if (!name.consume_front(file.name) || name.consumeInteger(10, number) || (count && number != first + count))
      return {None, 0, false};
    if (!count)
      first = number;
    ++count;
    name.consume_front("_");
  }
  return first + count > file.limit ? RegisterUnits{None, 0, false}
                                    : RegisterUnits{int32_t(file.first + first), int32_t(count), false};
}

RegisterUnits special(StringRef name, bool gfx9) {
  if (name.empty() || name.starts_with("SGPR_NULL"))
    return {None, 0, false};
  StringRef stem = name;
  const bool high = stem.consume_back("_HI");
  const bool whole = !high && !stem.consume_back("_LO");
  const int32_t pair = StringSwitch<int32_t>(stem)
                           .Case("VCC", Vcc)
                           .Case("EXEC", Exec)
                           .Case("FLAT_SCR", gfx9 ? FlatScratchSgpr : FlatScratch)
                           .Case("XNACK_MASK", gfx9 ? int32_t(XnackMask) : None)
                           .Default(None);
  if (pair != None)
    return {pair + high, whole ? 2 : 1, false};
  // Reading the "is zero" bits is reading the mask they summarise.
  return StringSwitch<RegisterUnits>(name)
      .Cases({"PC_REG", "FP_REG", "SP_REG", "PRIVATE_RSRC_REG"}, {None, 0, false})
      .Case("M0", {M0, 1, false})
      .Cases({"SCC", "SRC_SCC"}, {Scc, 1, false})
      .Case("MODE", {Mode, 1, false})
      .Case("SRC_VCCZ", {Vcc, 2, false})
      .Case("SRC_EXECZ", {Exec, 2, false})
      .Default({Other, 1, false});
}

} // namespace

RegisterUnits registerUnits(StringRef name, bool gfx9) {
  const bool half = name.consume_back("_LO16") || name.consume_back("_HI16");
  // What one register is called for different processors.
  for (const StringRef ending : {"_ci", "_vi", "_gfx9plus", "_gfxpre11", "_gfx11plus"})
    if (name.consume_back(ending))
      break;
  const File *file = fileOf(name);
  RegisterUnits found = file ? members(name, *file) : special(name, gfx9);
  found.half = half;
  return found;
}

} // namespace luthier
