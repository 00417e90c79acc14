// Encodes opcodes and operands to bytes, and prints them.
#include "isa.h"

#include "amdgpu_private.h"
#include "guard.h"
#include "interrupts.h"
#include "unused_fields.h"

#include "llvm/MC/MCCodeEmitter.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCExpr.h"
#include "llvm/MC/MCFixup.h"
#include "llvm/MC/MCSymbol.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace luthier {
namespace {

/// One space where LLVM prints a tab or pads columns; nothing at either end.
std::string tidied(StringRef text) {
  std::string tidy;
  tidy.reserve(text.size());
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t';
    if (!blank)
      tidy.push_back(c);
    else if (!tidy.empty() && tidy.back() != ' ')
      tidy.push_back(' ');
  }
  while (!tidy.empty() && tidy.back() == ' ')
    tidy.pop_back();
  return tidy;
}

bool is_constant(const MCOperand &operand) {
  return operand.isImm() || (operand.isExpr() && AMDGPU::isLitExpr(operand.getExpr()));
}

int64_t value_of(const MCOperand &constant) {
  return constant.isImm() ? constant.getImm() : AMDGPU::getLitValue(constant.getExpr());
}

} // namespace

/// Return an instruction in columns as an MCInst. Everything that LLVM uses as an index is checked here, because the
/// columns are the caller's.
MCInst Isa::instruction(const OperandColumns &columns, size_t index, MCContext &context) const {
  auto fail = [index](const std::string &what) { throw McError("instruction " + std::to_string(index) + ": " + what); };
  const int32_t opcode = columns.opcode[index];
  if (opcode < 0 || unsigned(opcode) >= instr_info_->getNumOpcodes())
    fail("opcode " + std::to_string(opcode) + " does not exist");
  const int32_t begin = columns.start[index], end = columns.start[index + 1];
  if (begin < 0 || end < begin || size_t(end) > columns.operands)
    fail("operand range is out of bounds");
  MCInst inst;
  inst.setOpcode(unsigned(opcode));
  for (int32_t i = begin; i < end; ++i) {
    const int64_t value = columns.value[i];
    switch (columns.kind[i]) {
    case kKindRegister:
      if (value < 0 || uint64_t(value) >= register_info_->getNumRegs())
        fail("register number " + std::to_string(value) + " does not exist");
      inst.addOperand(MCOperand::createReg(MCRegister(unsigned(value))));
      break;
    case kKindImmediate:
      inst.addOperand(MCOperand::createImm(value));
      break;
    case kKindExpression:
      inst.addOperand(MCOperand::createExpr(
          MCSymbolRefExpr::create(context.getOrCreateSymbol("fixup" + std::to_string(value)), context)));
      break;
    case kKindLiteral:
    case kKindLiteral64: {
      const LitModifier modifier = columns.kind[i] == kKindLiteral ? LitModifier::Lit : LitModifier::Lit64;
      inst.addOperand(MCOperand::createExpr(AMDGPUMCExpr::createLit(modifier, value, context)));
      break;
    }
    default:
      fail("operand kind " + std::to_string(columns.kind[i]) + " does not exist");
    }
  }
  if (const char *why = problem(inst))
    fail(instr_info_->getName(unsigned(opcode)).str() + ": " + why);
  return inst;
}

/// Return whether an encoding has one value for two constants: of two literals, LLVM's encoder writes only the first.
bool Isa::drops_literal(const MCInst &inst, ArrayRef<char> encoded, MCContext &context) const {
  const MCInstrDesc &desc = instr_info_->get(inst.getOpcode());
  SmallVector<unsigned, 4> sources;
  for (unsigned i = 0; i < inst.getNumOperands(); ++i)
    if (is_constant(inst.getOperand(i)) && register_class(desc.operands()[i]) >= 0)
      sources.push_back(i);
  if (sources.size() < 2 || encoded.size() <= desc.getSize())
    return false;
  std::unique_ptr<MCDisassembler> disassembler(target_->createMCDisassembler(*subtarget_, context));
  SmallVector<uint8_t, kLongestInstruction> bytes(encoded.begin(), encoded.end());
  bytes.resize(kLongestInstruction);
  MCInst again;
  uint64_t size = 0;
  if (disassembler->getInstruction(again, size, bytes, 0, nulls()) == MCDisassembler::Fail)
    return true;
  complete(again, bytes, size);
  for (const unsigned source : sources)
    for (const unsigned other : sources)
      if (value_of(inst.getOperand(source)) != value_of(inst.getOperand(other)) &&
          is_constant(again.getOperand(source)) && is_constant(again.getOperand(other)) &&
          value_of(again.getOperand(source)) == value_of(again.getOperand(other)))
        return true;
  return false;
}

std::pair<std::string, std::vector<int32_t>> Isa::encode(const OperandColumns &columns) const {
  MCContext context(triple_, asm_info_.get(), register_info_.get(), subtarget_.get());
  std::unique_ptr<MCCodeEmitter> emitter(target_->createMCCodeEmitter(*instr_info_, context));
  std::string code;
  std::vector<int32_t> offsets;
  offsets.reserve(columns.count + 1);
  SmallVector<char, 32> bytes;
  SmallVector<MCFixup, 2> fixups;
  size_t i = 0;
  bool dropped = false;
  const bool finished = survives([&] {
    for (; i < columns.count; ++i) {
      answer_signals();
      offsets.push_back(int32_t(code.size()));
      bytes.clear();
      fixups.clear();
      const MCInst inst = instruction(columns, i, context);
      emitter->encodeInstruction(inst, bytes, fixups, *subtarget_);
      if ((dropped = drops_literal(inst, bytes, context)))
        return;
      code.append(bytes.data(), bytes.size());
    }
  });
  if (!finished)
    throw McError("instruction " + std::to_string(i) + ": LLVM's encoder crashed on these operands");
  if (dropped)
    throw McError("instruction " + std::to_string(i) + ": LLVM's encoder writes one literal where two are needed");
  offsets.push_back(int32_t(code.size()));
  return {std::move(code), std::move(offsets)};
}

std::vector<std::string> Isa::print(const OperandColumns &columns, const int64_t *addresses) const {
  MCContext context(triple_, asm_info_.get(), register_info_.get(), subtarget_.get());
  std::unique_ptr<MCInstPrinter> printer = this->printer();
  std::vector<std::string> texts;
  texts.reserve(columns.count);
  std::string text;
  size_t i = 0;
  const bool finished = survives([&] {
    for (; i < columns.count; ++i) {
      answer_signals();
      text.clear();
      raw_string_ostream stream(text);
      const MCInst inst = instruction(columns, i, context);
      printer->printInst(&inst, uint64_t(addresses[i]), "", *subtarget_, stream);
      texts.push_back(tidied(text));
    }
  });
  if (!finished)
    throw McError("instruction " + std::to_string(i) + ": LLVM's printer crashed on these operands");
  return texts;
}

} // namespace luthier
