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
const Triple TheTriple("amdgcn-amd-amdhsa");

const Target *registeredTarget() {
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(TheTriple, error);
  if (!target)
    throw McError(error);
  return target;
}

/// LLVM finds what fields of a depctr operand are that assembly does not name once, for the processor that comes first.
/// Those before GFX10.3 have no hold_cnt: by their answer all others would wait for it, so one that has it comes first.
void settleDependencyCounters() {
  const std::unique_ptr<MCSubtargetInfo> subtarget(registeredTarget()->createMCSubtargetInfo(TheTriple, "gfx1030", ""));
  AMDGPU::DepCtr::getDefaultDepCtrEncoding(*subtarget);
}
} // namespace

void initializeLLVM() {
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
    settleDependencyCounters();
  });
}

namespace {
const Target *theTarget() {
  initializeLLVM();
  return registeredTarget();
}

OperandNames theNames;
} // namespace

std::unique_ptr<MCInstrInfo> instructionInfo() {
  return std::unique_ptr<MCInstrInfo>(theTarget()->createMCInstrInfo());
}

void setOperandNames(const std::map<std::string, unsigned> &numbers) {
  auto number = [&numbers](const char *name) {
    const auto found = numbers.find(name);
    if (found == numbers.end())
      throw McError(std::string("LLVM's number of the operand name ") + name + " is not known");
    return found->second;
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
  all.dstUnused = number("dst_unused");
  all.opSel = number("op_sel");
  all.opSelHi = number("op_sel_hi");
  all.negLo = number("neg_lo");
  all.negHi = number("neg_hi");
  all.src2Y = number("src2Y");
  all.vdstIn = number("vdst_in");
  all.vdst = number("vdst");
  all.vsrc1X = number("vsrc1X");
  all.vsrc1Y = number("vsrc1Y");
  all.vsrc2X = number("vsrc2X");
  all.vsrc2Y = number("vsrc2Y");
  all.bitop3 = number("bitop3");
  all.src1 = number("src1");
  theNames = std::move(all);
}

const OperandNames &operandNames() {
  if (theNames.names.empty())
    throw McError("operand names have not been set");
  return theNames;
}

OpcodeTables::OpcodeTables(const MCInstrInfo &instructions) {
  const unsigned count = instructions.getNumOpcodes();
  // LLVM's own mapping goes the other way, one column an encoding family. It answers -1 beyond its last column and for
  // opcodes that are not in it, another number where a family lacks the opcode.
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
  branchOperand.assign(count, -1);
  for (unsigned opcode = 0; opcode < count; ++opcode) {
    const MCInstrDesc &desc = instructions.get(opcode);
    flags[opcode] = instructionFlags(desc, instructions.get(generic[opcode]), instructions.getName(opcode));
    for (unsigned i = 0; i < desc.getNumOperands(); ++i)
      if (desc.operands()[i].OperandType == MCOI::OPERAND_PCREL)
        branchOperand[opcode] = int8_t(i);
    // LLVM has a type for operands that may be literals, and one for those that may not.
    const StringRef name = instructions.getName(opcode);
    if (name == "V_ADD_U16_e32" || name == "V_ADD_U16_sdwa") {
      const auto src0 = static_cast<AMDGPU::OpName>(operandNames().sources[0]);
      shortIntegers.insert(desc.operands()[size_t(AMDGPU::getNamedOperandIdx(uint16_t(opcode), src0))].OperandType);
    }
  }
}

namespace {
const OpcodeTables &theTables() {
  static const OpcodeTables tables(*instructionInfo());
  return tables;
}
} // namespace

Isa::Isa(const std::string &cpu, const std::string &features)
    : triple_(TheTriple), target_(theTarget()), tables_(theTables()) {
  registerInfo_.reset(target_->createMCRegInfo(triple_));
  asmInfo_.reset(target_->createMCAsmInfo(*registerInfo_, triple_, options_));
  instrInfo_.reset(target_->createMCInstrInfo());
  subtarget_.reset(target_->createMCSubtargetInfo(triple_, cpu, features));
  if (!subtarget_ || !subtarget_->isCPUStringValid(cpu))
    throw McError("LLVM knows no processor " + cpu);

  generation_ = AMDGPU::getIsaVersion(cpu).Major;
  if (subtarget_->checkFeatures("+1024-addressable-vgprs"))
    vgprs_ = 1024;
  flatOffsetBits_ = AMDGPU::getNumFlatOffsetBits(*subtarget_);
  hwMode_ = subtarget_->getHwMode(MCSubtargetInfo::HwMode_RegInfo);
}

std::unique_ptr<MCInstPrinter> Isa::printer() const {
  return std::unique_ptr<MCInstPrinter>(
      target_->createMCInstPrinter(triple_, asmInfo_->getAssemblerDialect(), *asmInfo_, *instrInfo_, *registerInfo_));
}

bool Isa::fits(const MCInstrDesc &desc) const {
  for (const MCOperandInfo &info : desc.operands())
    if (info.RegClass != -1) {
      const int id = registerClass(info);
      if (id < 0 || registerInfo_->getRegClass(unsigned(id)).getNumRegs() == 0)
        return false;
    }
  return true;
}

uint32_t Isa::realRegister(uint32_t number) const {
  return AMDGPU::getMCReg(AMDGPU::mc2PseudoReg(MCRegister(number)), *subtarget_).id();
}

std::string Isa::mnemonic(unsigned opcode) const {
  const MCInstrDesc &desc = instrInfo_->get(opcode);
  const std::unique_ptr<MCInstPrinter> printer = this->printer();
  MCInst inst;
  inst.setOpcode(opcode);
  if (desc.isPseudo() || !fits(desc)) {
    const char *text = printer->getMnemonic(inst).first;
    return text ? StringRef(text).trim().str() : std::string();
  }
  // The ending is printed with the first operand, so an instruction with operands of the right sort is printed.
  for (const MCOperandInfo &info : desc.operands()) {
    const int id = registerClass(info);
    if (id >= 0)
      inst.addOperand(MCOperand::createReg(*registerInfo_->getRegClass(unsigned(id)).begin()));
    else
      inst.addOperand(MCOperand::createImm(0));
  }
  std::string text;
  raw_string_ostream stream(text);
  printer->printInst(&inst, 0, "", *subtarget_, stream);
  return StringRef(text).trim().split(' ').first.split('\t').first.str();
}

namespace {
constexpr int Places = 4;

/// Return the number in LLVM's tables for a place that no operand has: one above every name of an operand.
unsigned noOperand(const MCInstrInfo &instructions) {
  unsigned most = 0;
  for (unsigned opcode = 0; opcode < instructions.getNumOpcodes(); ++opcode) {
    const auto [first, second] = AMDGPU::getVGPRLoweringOperandTables(instructions.get(opcode));
    for (const AMDGPU::OpName *names : {first, second})
      for (int place = 0; names && place < Places; ++place)
        most = std::max(most, unsigned(names[place]));
  }
  return most;
}
} // namespace

std::vector<int> Isa::vgprPlaces(unsigned opcode) const {
  static const unsigned none = noOperand(*instrInfo_);
  const MCInstrDesc &desc = instrInfo_->get(opcode);
  std::vector<int> result(desc.getNumOperands(), -1);
  const auto [first, second] = AMDGPU::getVGPRLoweringOperandTables(desc);
  for (const AMDGPU::OpName *names : {first, second})
    for (int place = 0; names && place < Places; ++place)
      if (unsigned(names[place]) != none)
        if (const int at = AMDGPU::getNamedOperandIdx(uint16_t(opcode), names[place]); at >= 0)
          result.at(size_t(at)) = place;
  return result;
}

std::string Isa::registerText(uint32_t number) const {
  // MCInstPrinter::printRegName of this target prints only the number.
  return number ? AMDGPUInstPrinter::getRegisterName(MCRegister(number)) : "";
}

bool Isa::encodes(uint32_t number, const RegisterUnits &units) const {
  // For several registers with the same units (TTMP0_vi, M0_gfx11plus, SRC_VCCZ, …) the encoder needs the one that LLVM
  // itself maps the generic one to, and never a read-only summary of it.
  if (units.first < 0 || units.half || realRegister(number) != number)
    return false;
  const StringRef name = registerInfo_->getName(MCRegister(number));
  if (name.starts_with("SRC_"))
    return false;
  // GFX9 has FLAT_SCRATCH and XNACK_MASK where later generations have SGPR 102 to 105.
  return generation_ > 9 || !name.starts_with("SGPR") || units.first + units.count <= 102 || units.first > 105;
}

OperandKind Isa::literalKind(const MCExpr &expression) const {
  std::string text;
  raw_string_ostream stream(text);
  asmInfo_->printExpr(stream, expression);
  return StringRef(text).starts_with("lit64") ? KindLiteral64 : KindLiteral;
}

int64_t Isa::branchTarget(const MCInst &inst, uint64_t address, uint64_t size) const {
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): a number, -1 for none
  const int operand = tables_.branchOperand[inst.getOpcode()];
  if (operand < 0 || unsigned(operand) >= inst.getNumOperands() || !inst.getOperand(unsigned(operand)).isImm())
    return NoTarget;
  const int64_t words = SignExtend64<16>(uint64_t(inst.getOperand(unsigned(operand)).getImm()));
  return int64_t(address + size + uint64_t(words * 4));
}

} // namespace luthier
