// LLVM's MC view of one AMDGPU processor.
#pragma once

#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/MCTargetOptions.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/TargetParser/TargetParser.h"
#include "llvm/TargetParser/Triple.h"

#include "repeats.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace luthier {

/// Something LLVM refuses: malformed text, operands that fit no encoding, or what LLVM itself would call a fatal error.
class McError : public std::runtime_error {
public:
  explicit McError(const std::string &message, int line = 0) : std::runtime_error(message), line(line) {}
  int line; ///< 1-based source line, 0 where there is none.
};

enum OperandKind : uint8_t {
  KindRegister = 1,   ///< value: LLVM register number
  KindImmediate = 2,  ///< value: the immediate as LLVM holds it
  KindExpression = 3, ///< value: index of the fixup
  KindLiteral = 4,    ///< value: an immediate that must be encoded as a 32-bit literal although it would fit inline
  KindLiteral64 = 5,  ///< the same as a 64-bit literal
};

// Bits of instructionFlags that are needed outside of flags.cpp.
constexpr uint32_t FlatFlag = 1u << 15, DsFlag = 1u << 16, ExportFlag = 1u << 17, MatrixFlag = 1u << 18,
                   SegmentFlags = (1u << 20) | (1u << 21), ScratchFlag = 1u << 21, SdwaFlag = 1u << 24,
                   GwsFlag = 1u << 28, LengthFlag = 1u << 30;

struct Fixup {
  int32_t instruction;
  int32_t byte;
  std::string kind;
  std::string symbol;
  std::string subtrahend;
  int64_t addend;
  std::string modifier;
};

struct AssemblyResult {
  Instructions instructions;
  std::string code;
  std::vector<std::pair<std::string, int32_t>> labels;
  std::vector<Fixup> fixups;
};

/// Operands as the caller gives them: borrowed columns.
struct OperandColumns {
  const int32_t *opcode;
  size_t count;
  const int32_t *start;
  const uint8_t *kind;
  const int64_t *value;
  size_t operands;
};

/// Numbers of LLVM's operand names (llvm::AMDGPU::OpName), found by luthier.isa.operand_names and given to
/// setOperandNames.
struct OperandNames {
  std::vector<std::string> names;  ///< by number; empty where unknown
  std::vector<unsigned> sources;   ///< src0, src1, src2
  std::vector<unsigned> modifiers; ///< src0_modifiers, src1_modifiers, src2_modifiers
  std::vector<unsigned> selects;   ///< dst_sel, src0_sel, src1_sel
  unsigned old, offset, dstUnused, opSel, opSelHi, negLo, negHi, src2Y, vdstIn, vdst, vsrc1X, vsrc1Y, vsrc2X, vsrc2Y,
      bitop3, src1;
};

/// Place of a register, in 32-bit units.
struct RegisterUnits {
  int32_t first; ///< -1 where there is none
  int32_t count;
  bool half;
};

/// Units of LLVM's register `name`, on GFX9 or on a later generation, of a processor with so many VGPRs. None where it
/// is SGPR_NULL, a pseudo register of code generation, or a number the processor has no register for.
RegisterUnits registerUnits(llvm::StringRef name, bool gfx9, unsigned vgprs);

/// Properties that are the same for every processor, by opcode.
struct OpcodeTables {
  explicit OpcodeTables(const llvm::MCInstrInfo &instructions);
  std::vector<uint32_t> generic;     ///< the opcode it encodes, common to all processors; itself where there is none
  std::vector<uint32_t> flags;       ///< instructionFlags
  std::vector<int8_t> branchOperand; ///< index of the PC-relative operand, -1 where there is none
  std::set<unsigned> shortIntegers;  ///< types of operands that are one integer of 16 bits
};

/// Must be called once before the first Isa is made.
void setOperandNames(const std::map<std::string, unsigned> &numbers);
const OperandNames &operandNames();

class Isa {
public:
  Isa(const std::string &cpu, const std::string &features);

  /// `patient`: always offer LLVM all bytes that follow; the same result, slower.
  Instructions decode(llvm::ArrayRef<uint8_t> code, uint64_t address, bool patient) const;
  std::pair<std::string, std::vector<int32_t>> encode(const OperandColumns &columns) const;
  std::vector<std::string> print(const OperandColumns &columns, const int64_t *addresses) const;
  AssemblyResult assemble(const std::string &source) const;

  const llvm::MCInstrInfo &instructions() const { return *instrInfo_; }
  const llvm::MCRegisterInfo &registers() const { return *registerInfo_; }
  const llvm::MCSubtargetInfo &subtarget() const { return *subtarget_; }
  uint32_t flags(unsigned opcode) const { return tables_.flags[opcode]; }
  uint32_t realRegister(uint32_t number) const;
  /// The register class an operand takes on this processor, -1 where it takes no register.
  int registerClass(const llvm::MCOperandInfo &info) const { return instrInfo_->getOpRegClassID(info, hwMode_); }
  /// False where the opcode takes registers that this processor does not have; LLVM would print such an instruction out
  /// of bounds.
  bool fits(const llvm::MCInstrDesc &desc) const;
  /// The operand that must be the same register, -1 where there is none.
  int tiedTo(unsigned opcode, unsigned operand) const;
  /// Return why this processor does not have an instruction; null if it may have it.
  ///
  /// LLVM's decoder accepts reserved encodings (an SGPR where only a VGPR can be, a tuple beyond the last register,
  /// reserved SDWA selections), and its printer and encoder then run into undefined behaviour, so everything is checked
  /// before it reaches them.
  const char *problem(const llvm::MCInst &inst) const;
  /// Gives a decoded or parsed instruction the operands of its opcode, no more and no fewer. LLVM's decoder leaves out
  /// at the end what it can do without: tied registers and modifier summaries.
  void complete(llvm::MCInst &inst) const;
  /// The same of an instruction that was decoded from `size` of the bytes; inline floats are what the encoder takes.
  void complete(llvm::MCInst &inst, llvm::ArrayRef<uint8_t> bytes, uint64_t size) const;
  /// Adds a register, immediate or literal to the operand columns; false where the operand is none of them.
  bool append(const llvm::MCOperand &operand, Instructions &out) const;
  /// KindLiteral or KindLiteral64, of an expression that forces a literal.
  OperandKind literalKind(const llvm::MCExpr &expression) const;
  /// The address an instruction at `address` branches to, NoTarget where it names none.
  int64_t branchTarget(const llvm::MCInst &inst, uint64_t address, uint64_t size) const;
  /// The first word of what is printed: with its _e32, _e64, _dpp, _sdwa ending.
  std::string mnemonic(unsigned opcode) const;
  std::string registerText(uint32_t number) const;
  /// For each operand the place (0 to 3: src0, src1, src2, dst, or what stands for them) whose bits of `s_set_vgpr_msb`
  /// go with its VGPR numbers, -1 where there is none.
  std::vector<int> vgprPlaces(unsigned opcode) const;
  RegisterUnits registerUnits(uint32_t number) const {
    return luthier::registerUnits(registerInfo_->getName(llvm::MCRegister(number)), generation_ == 9, vgprs_);
  }
  /// The opcode that `opcode` encodes, common to all processors; itself where LLVM has no other.
  unsigned genericOpcode(unsigned opcode) const { return tables_.generic[opcode]; }
  /// The register that this processor's encoder wants for these units; what a column of all registers is made from.
  bool encodes(uint32_t number, const RegisterUnits &units) const;

private:
  class Decoder;

  // LLVM's contexts and printers are not safe to share between threads, so each call makes its own.

  void eraseSurplusOperands(llvm::MCInst &inst) const;
  void correctTiedOperands(llvm::MCInst &inst) const;
  void extendFlatOffset(llvm::MCInst &inst) const;
  void addMissingOperands(llvm::MCInst &inst) const;
  void assembleInto(const std::string &source, AssemblyResult &result) const;
  llvm::MCInst instruction(const OperandColumns &columns, size_t index, llvm::MCContext &context) const;
  bool dropsLiteral(const llvm::MCInst &inst, llvm::ArrayRef<char> encoded, llvm::MCContext &context) const;
  std::unique_ptr<llvm::MCInstPrinter> printer() const;

  llvm::Triple triple_;
  llvm::MCTargetOptions options_;
  const llvm::Target *target_;
  std::unique_ptr<llvm::MCRegisterInfo> registerInfo_;
  std::unique_ptr<llvm::MCAsmInfo> asmInfo_;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget_;
  std::unique_ptr<llvm::MCInstrInfo> instrInfo_;
  unsigned hwMode_ = 0;
  unsigned generation_ = 0; ///< major version of the instruction set, e.g. 9
  unsigned flatOffsetBits_ = 0;
  unsigned vgprs_ = 256;                     ///< that instructions can name
  mutable std::unique_ptr<Repeats> repeats_; ///< null while a thread has it
  mutable std::mutex repeatsLock_;           ///< of the pointer
  bool wide() const { return vgprs_ > 256; } ///< GFX1250, which has more instructions than LLVM knows
  const OpcodeTables &tables_;
  const std::vector<uint32_t> &flags_ = tables_.flags;
};

/// Return the flags of an instruction; the bits are public (luthier.isa.InstructionFlag).
uint32_t instructionFlags(const llvm::MCInstrDesc &real, const llvm::MCInstrDesc &generic, llvm::StringRef name);

/// LLVM's table of opcodes.
std::unique_ptr<llvm::MCInstrInfo> instructionInfo();

/// Runs once: LLVM's AMDGPU target and a handler that turns fatal errors into exceptions.
void initializeLLVM();

} // namespace luthier
