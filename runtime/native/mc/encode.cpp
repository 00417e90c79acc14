// From opcode and operands to bytes, and to text.
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

bool isConstant(const MCOperand &operand) {
  return operand.isImm() || (operand.isExpr() && AMDGPU::isLitExpr(operand.getExpr()));
}

int64_t valueOf(const MCOperand &constant) {
  return constant.isImm() ? constant.getImm() : AMDGPU::getLitValue(constant.getExpr());
}

} // namespace

/// The instruction in columns as an MCInst. Everything LLVM would index with is checked here: the columns are the
/// caller's.
MCInst Isa::instruction(const OperandColumns &columns, size_t index, MCContext &context) const {
  auto fail = [index](const std::string &what) { throw McError("instruction " + std::to_string(index) + ": " + what); };
  const int32_t opcode = columns.opcode[index];
  if (opcode < 0 || unsigned(opcode) >= instrInfo_->getNumOpcodes())
    fail("opcode " + std::to_string(opcode) + " does not exist");
  const int32_t begin = columns.start[index], end = columns.start[index + 1];
  if (begin < 0 || end < begin || size_t(end) > columns.operands)
    fail("operand range is out of bounds");
  MCInst inst;
  inst.setOpcode(unsigned(opcode));
  for (int32_t i = begin; i < end; ++i) {
    const int64_t value = columns.value[i];
    switch (columns.kind[i]) {
    case KindRegister:
      if (value < 0 || uint64_t(value) >= registerInfo_->getNumRegs())
        fail("register number " + std::to_string(value) + " does not exist");
      inst.addOperand(MCOperand::createReg(MCRegister(unsigned(value))));
      break;
    case KindImmediate:
      inst.addOperand(MCOperand::createImm(value));
      break;
    case KindExpression:
      inst.addOperand(MCOperand::createExpr(
          MCSymbolRefExpr::create(context.getOrCreateSymbol("fixup" + std::to_string(value)), context)));
      break;
    case KindLiteral:
    case KindLiteral64: {
      const LitModifier modifier = columns.kind[i] == KindLiteral ? LitModifier::Lit : LitModifier::Lit64;
      inst.addOperand(MCOperand::createExpr(AMDGPUMCExpr::createLit(modifier, value, context)));
      break;
    }
    default:
      fail("operand kind " + std::to_string(columns.kind[i]) + " does not exist");
    }
  }
  if (const char *why = problem(inst))
    fail(instrInfo_->getName(unsigned(opcode)).str() + ": " + why);
  return inst;
}

/// Return whether an encoding has one value for two constants: of two literals LLVM's encoder writes the first alone.
bool Isa::dropsLiteral(const MCInst &inst, ArrayRef<char> encoded, MCContext &context) const {
  const MCInstrDesc &desc = instrInfo_->get(inst.getOpcode());
  SmallVector<unsigned, 4> sources;
  for (unsigned i = 0; i < inst.getNumOperands(); ++i)
    if (isConstant(inst.getOperand(i)) && registerClass(desc.operands()[i]) >= 0)
      sources.push_back(i);
  if (sources.size() < 2 || encoded.size() <= desc.getSize())
    return false;
  std::unique_ptr<MCDisassembler> disassembler(target_->createMCDisassembler(*subtarget_, context));
  SmallVector<uint8_t, LongestInstruction> bytes(encoded.begin(), encoded.end());
  bytes.resize(LongestInstruction);
  MCInst again;
  uint64_t size = 0;
  if (disassembler->getInstruction(again, size, bytes, 0, nulls()) == MCDisassembler::Fail)
    return true;
  complete(again, bytes, size);
  for (const unsigned one : sources)
    for (const unsigned other : sources)
      if (valueOf(inst.getOperand(one)) != valueOf(inst.getOperand(other)) && isConstant(again.getOperand(one)) &&
          isConstant(again.getOperand(other)) && valueOf(again.getOperand(one)) == valueOf(again.getOperand(other)))
        return true;
  return false;
}

std::pair<std::string, std::vector<int32_t>> Isa::encode(const OperandColumns &columns) const {
  MCContext context(triple_, asmInfo_.get(), registerInfo_.get(), subtarget_.get());
  std::unique_ptr<MCCodeEmitter> emitter(target_->createMCCodeEmitter(*instrInfo_, context));
  std::string code;
  std::vector<int32_t> offsets;
  offsets.reserve(columns.count + 1);
  SmallVector<char, 32> bytes;
  SmallVector<MCFixup, 2> fixups;
  size_t i = 0;
  bool dropped = false;
  const bool finished = survives([&] {
    for (; i < columns.count; ++i) {
      answerSignals();
      offsets.push_back(int32_t(code.size()));
      bytes.clear();
      fixups.clear();
      const MCInst inst = instruction(columns, i, context);
      emitter->encodeInstruction(inst, bytes, fixups, *subtarget_);
      if ((dropped = dropsLiteral(inst, bytes, context)))
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
  MCContext context(triple_, asmInfo_.get(), registerInfo_.get(), subtarget_.get());
  std::unique_ptr<MCInstPrinter> printer = this->printer();
  std::vector<std::string> texts;
  texts.reserve(columns.count);
  std::string text;
  size_t i = 0;
  const bool finished = survives([&] {
    for (; i < columns.count; ++i) {
      answerSignals();
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
