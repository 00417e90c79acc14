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

/// An error of LLVM: malformed text, operands that fit no encoding, or what LLVM itself treats as a fatal error.
class McError : public std::runtime_error {
public:
  explicit McError(const std::string &message, int line = 0) : std::runtime_error(message), line(line) {}
  int line; ///< 1-based source line, 0 where there is none.
};

// Bits of instruction_flags that are needed outside of flags.cpp.
constexpr uint32_t kFlatFlag = 1u << 15, kDsFlag = 1u << 16, kExportFlag = 1u << 17, kMatrixFlag = 1u << 18,
                   kSegmentFlags = (1u << 20) | (1u << 21), kScratchFlag = 1u << 21, kSdwaFlag = 1u << 24,
                   kGwsFlag = 1u << 28, kLengthFlag = 1u << 30;

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

/// Operands in borrowed columns of the caller.
struct OperandColumns {
  const int32_t *opcode;
  size_t count;
  const int32_t *start;
  const uint8_t *kind;
  const int64_t *value;
  size_t operands;
};

/// Numbers of LLVM's operand names (llvm::AMDGPU::OpName), found by luthier.isa.operand_names and given to
/// set_operand_names.
struct OperandNames {
  std::vector<std::string> names;  ///< by number; empty where unknown
  std::vector<unsigned> sources;   ///< src0, src1, src2
  std::vector<unsigned> modifiers; ///< src0_modifiers, src1_modifiers, src2_modifiers
  std::vector<unsigned> selects;   ///< dst_sel, src0_sel, src1_sel
  unsigned old, offset, dst_unused, op_sel, op_sel_hi, neg_lo, neg_hi, src2_y, vdst_in, vdst, vsrc1_x, vsrc1_y, vsrc2_x,
      vsrc2_y, bitop3, src1;
};

/// Place of a register, in 32-bit units.
struct RegisterUnits {
  int32_t first; ///< -1 where there is none
  int32_t count;
  bool half;
};

/// Return the units of LLVM's register `name`, on GFX9 or later, on a processor with `vgprs` VGPRs; none for SGPR_NULL,
/// pseudo registers of code generation, and registers that the processor does not have.
RegisterUnits register_units(llvm::StringRef name, bool gfx9, unsigned vgprs);

/// Properties that are the same for every processor, by opcode.
struct OpcodeTables {
  explicit OpcodeTables(const llvm::MCInstrInfo &instructions);
  std::vector<uint32_t> generic;      ///< the opcode it encodes, common to all processors; itself where there is none
  std::vector<uint32_t> flags;        ///< instruction_flags
  std::vector<int8_t> branch_operand; ///< index of the PC-relative operand, -1 where there is none
  std::set<unsigned> short_integers;  ///< types of operands that are one integer of 16 bits
};

/// Must be called once before the first Isa is made.
void set_operand_names(const std::map<std::string, unsigned> &numbers);
const OperandNames &operand_names();

class Isa {
public:
  Isa(const std::string &cpu, const std::string &features);

  /// `patient`: always pass LLVM all bytes that follow; the same result, slower.
  Instructions decode(llvm::ArrayRef<uint8_t> code, uint64_t address, bool patient) const;
  std::pair<std::string, std::vector<int32_t>> encode(const OperandColumns &columns) const;
  std::vector<std::string> print(const OperandColumns &columns, const int64_t *addresses) const;
  AssemblyResult assemble(const std::string &source) const;

  const llvm::MCInstrInfo &instructions() const { return *instr_info_; }
  const llvm::MCRegisterInfo &registers() const { return *register_info_; }
  const llvm::MCSubtargetInfo &subtarget() const { return *subtarget_; }
  uint32_t flags(unsigned opcode) const { return tables_.flags[opcode]; }
  uint32_t real_register(uint32_t number) const;
  /// Return the register class of an operand on this processor, -1 if it takes no register.
  int register_class(const llvm::MCOperandInfo &info) const { return instr_info_->getOpRegClassID(info, hw_mode_); }
  /// Return false if the opcode takes registers that this processor does not have: LLVM would access its tables out of
  /// bounds when it prints such an instruction.
  bool fits(const llvm::MCInstrDesc &desc) const;
  /// Return the operand that must be the same register, -1 if there is none.
  int tied_to(unsigned opcode, unsigned operand) const;
  /// Return why this processor does not have an instruction; null if it may have it.
  ///
  /// LLVM's decoder accepts reserved encodings (an SGPR where only a VGPR can be, a tuple beyond the last register,
  /// reserved SDWA selections), and its printer and encoder then run into undefined behaviour, so everything is checked
  /// before it reaches them.
  const char *problem(const llvm::MCInst &inst) const;
  /// Give a decoded or parsed instruction exactly the operands of its opcode. LLVM's decoder omits operands at the end:
  /// tied registers and modifier summaries.
  void complete(llvm::MCInst &inst) const;
  /// Complete an instruction that was decoded from `size` of the bytes, with inline floats as the encoder takes them.
  void complete(llvm::MCInst &inst, llvm::ArrayRef<uint8_t> bytes, uint64_t size) const;
  /// Return whether an operand of an opcode may be this register, and the register's number in encodings is `index`.
  /// False for matrix operations: equal registers make some of them other opcodes.
  bool takes(unsigned opcode, size_t operand, unsigned number, int64_t index) const;
  /// Append a register, immediate or literal to the operand columns; return false for other operands.
  bool append(const llvm::MCOperand &operand, Instructions &out) const;
  bool append(const llvm::MCInst &inst, Instructions &out) const;
  /// Return kKindLiteral or kKindLiteral64 for an expression that forces a literal.
  OperandKind literal_kind(const llvm::MCExpr &expression) const;
  /// Return the address to which an instruction at `address` branches, kNoTarget if it names none.
  int64_t branch_target(const llvm::MCInst &inst, uint64_t address, uint64_t size) const;
  /// Return the mnemonic as it is printed, with its _e32, _e64, _dpp or _sdwa suffix.
  std::string mnemonic(unsigned opcode) const;
  std::string register_text(uint32_t number) const;
  /// Return for each operand the place (0 to 3: src0, src1, src2, dst, or their equivalents) whose bits of
  /// `s_set_vgpr_msb` extend its VGPR numbers, -1 if there is none.
  std::vector<int> vgpr_places(unsigned opcode) const;
  RegisterUnits register_units(uint32_t number) const {
    return luthier::register_units(register_info_->getName(llvm::MCRegister(number)), generation_ == 9, vgprs_);
  }
  /// Return the opcode that `opcode` encodes, common to all processors; itself if LLVM has no other.
  unsigned generic_opcode(unsigned opcode) const { return tables_.generic[opcode]; }
  /// Return whether this processor's encoder takes this register for these units.
  bool encodes(uint32_t number, const RegisterUnits &units) const;
  /// Return whether a register of these units is an SGPR that this processor does not have.
  bool lacks_sgpr(uint32_t number, int64_t first, int64_t count) const;

private:
  /// Parts of `problem`: why an operand cannot be as it is, and why the SDWA selections cannot.
  const char *operand_problem(const llvm::MCInst &inst, unsigned index) const;
  const char *selection_problem(const llvm::MCInst &inst) const;
  class Decoder;

  // LLVM's contexts and printers are not safe to share between threads, so each call makes its own.

  void erase_surplus_operands(llvm::MCInst &inst) const;
  void correct_tied_operands(llvm::MCInst &inst) const;
  void extend_flat_offset(llvm::MCInst &inst) const;
  void add_missing_operands(llvm::MCInst &inst) const;
  void assemble_into(const std::string &source, AssemblyResult &result) const;
  llvm::MCInst instruction(const OperandColumns &columns, size_t index, llvm::MCContext &context) const;
  bool drops_literal(const llvm::MCInst &inst, llvm::ArrayRef<char> encoded, llvm::MCContext &context) const;
  std::unique_ptr<llvm::MCInstPrinter> printer() const;

  llvm::Triple triple_;
  llvm::MCTargetOptions options_;
  const llvm::Target *target_;
  std::unique_ptr<llvm::MCRegisterInfo> register_info_;
  std::unique_ptr<llvm::MCAsmInfo> asm_info_;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget_;
  std::unique_ptr<llvm::MCInstrInfo> instr_info_;
  unsigned hw_mode_ = 0;
  unsigned generation_ = 0; ///< major version of the instruction set, e.g. 9
  unsigned flat_offset_bits_ = 0;
  unsigned vgprs_ = 256;                     ///< that instructions can name
  mutable std::unique_ptr<Repeats> repeats_; ///< null while a thread has it
  mutable std::mutex repeats_lock_;          ///< of the pointer
  bool wide() const { return vgprs_ > 256; } ///< GFX1250, which has more instructions than LLVM knows
  const OpcodeTables &tables_;
  const std::vector<uint32_t> &flags_ = tables_.flags;
};

/// Return the flags of an instruction; the bits are public (luthier.isa.InstructionFlag).
uint32_t instruction_flags(const llvm::MCInstrDesc &real, const llvm::MCInstrDesc &generic, llvm::StringRef name);

/// LLVM's table of opcodes.
std::unique_ptr<llvm::MCInstrInfo> instruction_info();

/// Initialize, once, LLVM's AMDGPU target and a handler that turns fatal errors into exceptions.
void initialize_llvm();

} // namespace luthier
