#include "isa.h"

#include "amdgpu_private.h"

#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>
#include <numeric>

extern "C" {
void LLVMInitializeAMDGPUTargetInfo();
void LLVMInitializeAMDGPUTargetMC();
void LLVMInitializeAMDGPUAsmParser();
void LLVMInitializeAMDGPUDisassembler();
}

using namespace llvm;

namespace luthier {

namespace {
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): only if no memory is left to load a library
const Triple the_triple("amdgcn-amd-amdhsa");

const Target *registered_target() {
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(the_triple, error);
  if (!target)
    throw McError(error);
  return target;
}

/// LLVM computes the default fields of a depctr operand once, for the first processor. Those before GFX10.3 have no
/// hold_cnt: with their default all others would wait for it, so a processor that has it must come first.
void settle_dependency_counters() {
  const std::unique_ptr<MCSubtargetInfo> subtarget(
      registered_target()->createMCSubtargetInfo(the_triple, "gfx1030", ""));
  AMDGPU::DepCtr::getDefaultDepCtrEncoding(*subtarget);
}
} // namespace

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmParser();
    LLVMInitializeAMDGPUDisassembler();
    // This LLVM is private to the module, so the handler meets no other user. LLVM's frames are unwound without running
    // their destructors' equivalents: what they held leaks, which is the price of surviving a condition LLVM calls
    // fatal.
    install_fatal_error_handler(
        [](void *, const char *reason, bool) { throw McError(std::string("LLVM: ") + reason); });
    settle_dependency_counters();
  });
}

namespace {
const Target *the_target() {
  initialize_llvm();
  return registered_target();
}

OperandNames the_names;
} // namespace

std::unique_ptr<MCInstrInfo> instruction_info() {
  return std::unique_ptr<MCInstrInfo>(the_target()->createMCInstrInfo());
}

void set_operand_names(const std::map<std::string, unsigned> &numbers) {
  auto number = [&numbers](const char *name) {
    const auto entry = numbers.find(name);
    if (entry == numbers.end())
      throw McError(std::string("LLVM's number of the operand name ") + name + " is not known");
    return entry->second;
  };
  OperandNames all;
  for (const auto &[name, index] : numbers) {
    if (index >= all.names.size())
      all.names.resize(index + 1);
    all.names[index] = name;
  }
  all.sources = {number("src0"), number("src1"), number("src2")};
  all.modifiers = {number("src0_modifiers"), number("src1_modifiers"), number("src2_modifiers")};
  all.selects = {number("dst_sel"), number("src0_sel"), number("src1_sel")};
  all.old = number("old");
  all.offset = number("offset");
  all.dst_unused = number("dst_unused");
  all.op_sel = number("op_sel");
  all.op_sel_hi = number("op_sel_hi");
  all.neg_lo = number("neg_lo");
  all.neg_hi = number("neg_hi");
  all.src2_y = number("src2Y");
  all.vdst_in = number("vdst_in");
  all.vdst = number("vdst");
  all.vsrc1_x = number("vsrc1X");
  all.vsrc1_y = number("vsrc1Y");
  all.vsrc2_x = number("vsrc2X");
  all.vsrc2_y = number("vsrc2Y");
  all.bitop3 = number("bitop3");
  all.src1 = number("src1");
  the_names = std::move(all);
}

const OperandNames &operand_names() {
  if (the_names.names.empty())
    throw McError("operand names have not been set");
  return the_names;
}

OpcodeTables::OpcodeTables(const MCInstrInfo &instructions) {
  const unsigned count = instructions.getNumOpcodes();
  // LLVM's own mapping goes the other way, with a column for each encoding family. It gives -1 beyond its last column
  // and for opcodes that are not in it, and another number if a family lacks the opcode.
  generic.resize(count);
  std::iota(generic.begin(), generic.end(), 0u);
  for (unsigned pseudo = 0; pseudo < count; ++pseudo) {
    if (!instructions.get(pseudo).isPseudo())
      continue;
    for (unsigned family = 0;; ++family) {
      const int real = AMDGPU::getMCOpcode(uint16_t(pseudo), family);
      if (real < 0)
        break;
      if (unsigned(real) >= count || unsigned(real) == pseudo)
        continue;
      // Where two generic opcodes share an encoding, the one the real name was made from wins.
      uint32_t &entry = generic[unsigned(real)];
      if (entry == unsigned(real) || instructions.getName(unsigned(real)).starts_with(instructions.getName(pseudo)))
        entry = pseudo;
    }
  }
  flags.resize(count);
  branch_operand.assign(count, -1);
  for (unsigned opcode = 0; opcode < count; ++opcode) {
    const MCInstrDesc &desc = instructions.get(opcode);
    flags[opcode] = instruction_flags(desc, instructions.get(generic[opcode]), instructions.getName(opcode));
    for (unsigned i = 0; i < desc.getNumOperands(); ++i)
      if (desc.operands()[i].OperandType == MCOI::OPERAND_PCREL)
        branch_operand[opcode] = int8_t(i);
    // LLVM has a type for operands that may be literals, and one for those that may not.
    const StringRef name = instructions.getName(opcode);
    if (name == "V_ADD_U16_e32" || name == "V_ADD_U16_sdwa") {
      const auto src0 = static_cast<AMDGPU::OpName>(operand_names().sources[0]);
      short_integers.insert(desc.operands()[size_t(AMDGPU::getNamedOperandIdx(uint16_t(opcode), src0))].OperandType);
    }
  }
}

namespace {
const OpcodeTables &the_tables() {
  static const OpcodeTables tables(*instruction_info());
  return tables;
}
} // namespace

Isa::Isa(const std::string &cpu, const std::string &features)
    : triple_(the_triple), target_(the_target()), tables_(the_tables()) {
  register_info_.reset(target_->createMCRegInfo(triple_));
  asm_info_.reset(target_->createMCAsmInfo(*register_info_, triple_, options_));
  instr_info_.reset(target_->createMCInstrInfo());
  subtarget_.reset(target_->createMCSubtargetInfo(triple_, cpu, features));
  if (!subtarget_ || !subtarget_->isCPUStringValid(cpu))
    throw McError("LLVM knows no processor " + cpu);

  generation_ = AMDGPU::getIsaVersion(cpu).Major;
  if (subtarget_->checkFeatures("+1024-addressable-vgprs"))
    vgprs_ = 1024;
  flat_offset_bits_ = AMDGPU::getNumFlatOffsetBits(*subtarget_);
  hw_mode_ = subtarget_->getHwMode(MCSubtargetInfo::HwMode_RegInfo);
}

std::unique_ptr<MCInstPrinter> Isa::printer() const {
  return std::unique_ptr<MCInstPrinter>(target_->createMCInstPrinter(triple_, asm_info_->getAssemblerDialect(),
                                                                     *asm_info_, *instr_info_, *register_info_));
}

bool Isa::fits(const MCInstrDesc &desc) const {
  for (const MCOperandInfo &info : desc.operands())
    if (info.RegClass != -1) {
      const int id = register_class(info);
      if (id < 0 || register_info_->getRegClass(unsigned(id)).getNumRegs() == 0)
        return false;
    }
  return true;
}

uint32_t Isa::real_register(uint32_t number) const {
  return AMDGPU::getMCReg(AMDGPU::mc2PseudoReg(MCRegister(number)), *subtarget_).id();
}

std::string Isa::mnemonic(unsigned opcode) const {
  const MCInstrDesc &desc = instr_info_->get(opcode);
  const std::unique_ptr<MCInstPrinter> printer = this->printer();
  MCInst inst;
  inst.setOpcode(opcode);
  if (desc.isPseudo() || !fits(desc)) {
    const char *text = printer->getMnemonic(inst).first;
    return text ? StringRef(text).trim().str() : std::string();
  }
  // The ending is printed with the first operand, so an instruction with operands of the right sort is printed.
  for (const MCOperandInfo &info : desc.operands()) {
    const int id = register_class(info);
    if (id >= 0)
      inst.addOperand(MCOperand::createReg(*register_info_->getRegClass(unsigned(id)).begin()));
    else
      inst.addOperand(MCOperand::createImm(0));
  }
  std::string text;
  raw_string_ostream stream(text);
  printer->printInst(&inst, 0, "", *subtarget_, stream);
  return StringRef(text).trim().split(' ').first.split('\t').first.str();
}

namespace {
constexpr int kPlaces = 4;

/// Return the number that LLVM's tables have for a place without an operand: one above all names of operands.
unsigned no_operand(const MCInstrInfo &instructions) {
  unsigned most = 0;
  for (unsigned opcode = 0; opcode < instructions.getNumOpcodes(); ++opcode) {
    const auto [first, second] = AMDGPU::getVGPRLoweringOperandTables(instructions.get(opcode));
    for (const AMDGPU::OpName *names : {first, second})
      for (int place = 0; names && place < kPlaces; ++place)
        most = std::max(most, unsigned(names[place]));
  }
  return most;
}
} // namespace

std::vector<int> Isa::vgpr_places(unsigned opcode) const {
  static const unsigned none = no_operand(*instr_info_);
  const MCInstrDesc &desc = instr_info_->get(opcode);
  std::vector<int> result(desc.getNumOperands(), -1);
  const auto [first, second] = AMDGPU::getVGPRLoweringOperandTables(desc);
  for (const AMDGPU::OpName *names : {first, second})
    for (int place = 0; names && place < kPlaces; ++place)
      if (unsigned(names[place]) != none)
        if (const int at = AMDGPU::getNamedOperandIdx(uint16_t(opcode), names[place]); at >= 0)
          result.at(size_t(at)) = place;
  return result;
}

std::string Isa::register_text(uint32_t number) const {
  // MCInstPrinter::printRegName of this target prints only the number.
  return number ? AMDGPUInstPrinter::getRegisterName(MCRegister(number)) : "";
}

bool Isa::encodes(uint32_t number, const RegisterUnits &units) const {
  // For several registers with the same units (TTMP0_vi, M0_gfx11plus, SRC_VCCZ, …) the encoder needs the one that LLVM
  // itself maps the generic one to, and never a read-only summary of it.
  if (units.first < 0 || units.half || real_register(number) != number)
    return false;
  const StringRef name = register_info_->getName(MCRegister(number));
  return !name.starts_with("SRC_") && !lacks_sgpr(number, units.first, units.count);
}

bool Isa::lacks_sgpr(uint32_t number, int64_t first, int64_t count) const {
  // GFX9 has FLAT_SCRATCH and XNACK_MASK where later generations have SGPR 102 to 105.
  return generation_ <= 9 && first + count > 102 && first <= 105 &&
         StringRef(register_info_->getName(MCRegister(number))).starts_with("SGPR");
}

OperandKind Isa::literal_kind(const MCExpr &expression) const {
  std::string text;
  raw_string_ostream stream(text);
  asm_info_->printExpr(stream, expression);
  return StringRef(text).starts_with("lit64") ? kKindLiteral64 : kKindLiteral;
}

int64_t Isa::branch_target(const MCInst &inst, uint64_t address, uint64_t size) const {
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): a number, -1 for none
  const int operand = tables_.branch_operand[inst.getOpcode()];
  if (operand < 0 || unsigned(operand) >= inst.getNumOperands() || !inst.getOperand(unsigned(operand)).isImm())
    return kNoTarget;
  const int64_t words = SignExtend64<16>(uint64_t(inst.getOperand(unsigned(operand)).getImm()));
  return int64_t(address + size + uint64_t(words * 4));
}

} // namespace luthier
