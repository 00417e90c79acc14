// Functions that LLVM's AMDGPU libraries export but whose headers LLVM does not install.
//
// Only names and signatures are repeated here, never values of enumerations: operand names are calibrated with known
// opcodes (luthier.isa.operand_names), so that a library with another numbering is detected.
#pragma once

#include "llvm/MC/MCExpr.h"
#include "llvm/MC/MCRegister.h"

#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): the names are LLVM's
namespace llvm {
class MCContext;
class MCInstrDesc;
class MCSubtargetInfo;

enum class LitModifier { None, Lit, Lit64 };

class AMDGPUMCExpr : public MCTargetExpr { // only the base class matters here: it places the MCExpr in the object
public:
  static const AMDGPUMCExpr *createLit(LitModifier Lit, int64_t Value, MCContext &Ctx);
};

class AMDGPUInstPrinter {
public:
  static const char *getRegisterName(MCRegister Reg);
};

namespace AMDGPU {
enum class OpName : uint8_t; // LLVM keeps tables of them: the size matters
enum class Subtarget;

int16_t getNamedOperandIdx(uint16_t Opcode, OpName Name);
std::pair<const OpName *, const OpName *> getVGPRLoweringOperandTables(const MCInstrDesc &Desc);
int getMCOpcode(uint16_t Opcode, unsigned Gen);
MCRegister getMCReg(MCRegister Reg, const MCSubtargetInfo &STI);
MCRegister mc2PseudoReg(MCRegister Reg);
unsigned getNumFlatOffsetBits(const MCSubtargetInfo &STI);
bool isInlineValue(MCRegister Reg);
bool isLitExpr(const MCExpr *Expr);
int64_t getLitValue(const MCExpr *Expr);

namespace DepCtr {
int getDefaultDepCtrEncoding(const MCSubtargetInfo &STI);
}
} // namespace AMDGPU
} // namespace llvm
// NOLINTEND(readability-identifier-naming)
