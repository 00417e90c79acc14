// From opcode and operands to bytes, and to text.
#include "isa.h"

#include "amdgpu_private.h"
#include "guard.h"
#include "interrupts.h"

#include "llvm/MC/MCCodeEmitter.h"
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

std::pair<std::string, std::vector<int32_t>> Isa::encode(const OperandColumns &columns) const {
  MCContext context(triple_, asmInfo_.get(), registerInfo_.get(), subtarget_.get());
  std::unique_ptr<MCCodeEmitter> emitter(target_->createMCCodeEmitter(*instrInfo_, context));
  std::string code;
  std::vector<int32_t> offsets;
  offsets.reserve(columns.count + 1);
  SmallVector<char, 32> bytes;
  SmallVector<MCFixup, 2> fixups;
  size_t i = 0;
  const bool finished = survives([&] {
    for (; i < columns.count; ++i) {
      answerSignals();
      offsets.push_back(int32_t(code.size()));
      bytes.clear();
      fixups.clear();
      emitter->encodeInstruction(instruction(columns, i, context), bytes, fixups, *subtarget_);
      code.append(bytes.data(), bytes.size());
    }
  });
  if (!finished)
    throw McError("instruction " + std::to_string(i) + ": LLVM's encoder crashed on these operands");
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
