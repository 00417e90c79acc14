// Assembly text to instructions, labels and fixups.
#include "isa.h"

#include "amdgpu_private.h"
#include "guard.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/MC/MCCodeEmitter.h"
#include "llvm/MC/MCExpr.h"
#include "llvm/MC/MCFixup.h"
#include "llvm/MC/MCObjectFileInfo.h"
#include "llvm/MC/MCParser/MCAsmParser.h"
#include "llvm/MC/MCParser/MCTargetAsmParser.h"
#include "llvm/MC/MCSection.h"
#include "llvm/MC/MCStreamer.h"
#include "llvm/MC/MCSymbol.h"
#include "llvm/MC/MCValue.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>

using namespace llvm;

namespace luthier {

/// Receives the parser's output and keeps the code.
class Collector : public MCStreamer {
public:
  Collector(MCContext &context, const Isa &isa, MCCodeEmitter &emitter, AssemblyResult &result)
      : MCStreamer(context), isa_(isa), emitter_(emitter), result_(result) {
    result_.instructions.operand_start.push_back(0);
  }

  void emitLabel(MCSymbol *symbol, SMLoc location) override {
    MCStreamer::emitLabel(symbol, location);
    if (in_text()) {
      flush_data();
      result_.labels.emplace_back(symbol->getName().str(), int32_t(count()));
    }
  }

  void emitInstruction(const MCInst &inst, const MCSubtargetInfo &) override {
    if (!in_text())
      return;
    flush_data();
    add(inst);
  }

  void emitBytes(StringRef data) override {
    if (in_text())
      data_ += data;
  }

  void emitValueImpl(const MCExpr *value, unsigned size, SMLoc location) override {
    MCStreamer::emitValueImpl(value, size, location);
    if (!in_text())
      return;
    int64_t number;
    if (!value->evaluateAsAbsolute(number))
      getContext().reportError(location, "data between instructions must be a constant");
    else
      for (unsigned i = 0; i < size; ++i)
        data_.push_back(char(uint64_t(number) >> (8 * i)));
  }

  // Padding is not code: blocks are laid out again anyway. The base class would turn it into bytes.
  void emitFill(const MCExpr &, uint64_t, SMLoc) override {}
  void emitFill(const MCExpr &, int64_t, int64_t, SMLoc) override {}
  void emitValueToAlignment(Align, int64_t, uint8_t, unsigned) override {}
  void emitCodeAlignment(Align, const MCSubtargetInfo *, unsigned) override {}

  bool emitSymbolAttribute(MCSymbol *, MCSymbolAttr) override { return true; }
  void emitCommonSymbol(MCSymbol *, uint64_t, Align) override {}

  void flush_data() {
    if (data_.empty())
      return;
    const std::string data = std::move(data_);
    data_.clear();
    const size_t base = result_.code.size();
    const Instructions more =
        isa_.decode(ArrayRef<uint8_t>(reinterpret_cast<const uint8_t *>(data.data()), data.size()), base, false);
    Instructions &all = result_.instructions;
    const int32_t operand_base = int32_t(all.operand_kind.size());
    for (size_t i = 0; i < more.opcode.size(); ++i) {
      all.offset.push_back(int64_t(base) + more.offset[i]);
      all.size.push_back(more.size[i]);
      all.opcode.push_back(more.opcode[i]);
      all.flags.push_back(more.flags[i]);
      all.target.push_back(more.target[i]);
      all.operand_start.push_back(operand_base + more.operand_start[i + 1]);
    }
    all.operand_kind.insert(all.operand_kind.end(), more.operand_kind.begin(), more.operand_kind.end());
    all.operand_value.insert(all.operand_value.end(), more.operand_value.begin(), more.operand_value.end());
    result_.code += data;
  }

private:
  bool in_text() const {
    const MCSection *section = getCurrentSectionOnly();
    return section && section->isText();
  }

  size_t count() const { return result_.instructions.opcode.size(); }

  void add(MCInst inst) {
    isa_.complete(inst);
    const unsigned opcode = inst.getOpcode();
    Instructions &all = result_.instructions;
    const auto index = int32_t(count());

    // Absolute expressions become immediates before encoding; the others are found again by identity in the encoder's
    // fixups.
    struct Symbolic {
      const MCExpr *expression;
      size_t operand;
    };
    SmallVector<Symbolic, 2> symbolic;
    for (MCOperand &operand : inst) {
      int64_t number;
      if (operand.isExpr() && !AMDGPU::isLitExpr(operand.getExpr()) && operand.getExpr()->evaluateAsAbsolute(number))
        operand = MCOperand::createImm(number);
      if (isa_.append(operand, all))
        continue;
      if (operand.isExpr()) {
        symbolic.push_back({operand.getExpr(), all.operand_value.size()});
        all.operand_kind.push_back(kKindExpression);
        all.operand_value.push_back(-1);
      } else {
        throw McError("LLVM assembled an operand that is neither register, immediate nor expression");
      }
    }

    SmallVector<char, 32> bytes;
    SmallVector<MCFixup, 2> fixups;
    emitter_.encodeInstruction(inst, bytes, fixups, isa_.subtarget());
    for (const MCFixup &fixup : fixups)
      for (const Symbolic &symbol : symbolic)
        if (symbol.expression == fixup.getValue()) {
          all.operand_value[symbol.operand] = int64_t(result_.fixups.size());
          result_.fixups.push_back(describe(index, fixup));
        }
    for (const Symbolic &symbol : symbolic)
      if (all.operand_value[symbol.operand] < 0) {
        getContext().reportError(inst.getLoc(), "this operand cannot depend on a symbol");
        all.operand_kind[symbol.operand] = kKindImmediate;
        all.operand_value[symbol.operand] = 0;
      }

    all.offset.push_back(int64_t(result_.code.size()));
    all.size.push_back(int32_t(bytes.size()));
    all.opcode.push_back(int32_t(opcode));
    all.flags.push_back(isa_.flags(opcode));
    all.target.push_back(isa_.branch_target(inst, result_.code.size(), bytes.size()));
    all.operand_start.push_back(int32_t(all.operand_kind.size()));
    result_.code.append(bytes.data(), bytes.size());
  }

  Fixup describe(int32_t instruction, const MCFixup &fixup) {
    Fixup out{instruction, int32_t(fixup.getOffset()), "", "", "", 0, ""};
    switch (fixup.getKind()) {
    case FirstTargetFixupKind: // the only one of the target: the 16-bit displacement of SOPP branches
      out.kind = "sopp_branch";
      break;
    case FK_Data_4:
      out.kind = "literal32";
      break;
    case FK_Data_8:
      out.kind = "literal64";
      break;
    default:
      out.kind = "llvm" + std::to_string(fixup.getKind());
    }

    const MCExpr *expression = fixup.getValue();
    if (const auto *binary = dyn_cast<MCBinaryExpr>(expression)) {
      const auto *right = dyn_cast<MCConstantExpr>(binary->getRHS());
      const auto operation = binary->getOpcode();
      if (right && operation == MCBinaryExpr::And && right->getValue() == 0xffffffff)
        out.modifier = "lo32";
      else if (right && (operation == MCBinaryExpr::AShr || operation == MCBinaryExpr::LShr) && right->getValue() == 32)
        out.modifier = "hi32";
      if (!out.modifier.empty())
        expression = binary->getLHS();
    }
    MCValue value;
    const MCAsmInfo &asm_info = *getContext().getAsmInfo();
    if (!expression->evaluateAsRelocatable(value, nullptr)) {
      std::string text;
      raw_string_ostream stream(text);
      asm_info.printExpr(stream, *expression);
      getContext().reportError(fixup.getLoc(), "cannot express '" + text + "' as a symbol and an addend");
      return out;
    }
    if (value.getAddSym())
      out.symbol = value.getAddSym()->getName().str();
    if (value.getSubSym())
      out.subtrahend = value.getSubSym()->getName().str();
    out.addend = value.getConstant();
    if (value.getSpecifier())
      out.modifier = asm_info.getSpecifierName(value.getSpecifier()).str();
    return out;
  }

  const Isa &isa_;
  MCCodeEmitter &emitter_;
  AssemblyResult &result_;
  std::string data_;
};

namespace {

/// Functions of expressions, and how many arguments LLVM takes from them, whether they are there or not
/// (AMDGPUMCExpr.cpp).
constexpr std::pair<StringLiteral, unsigned> kFunctions[] = {
    {"occupancy", 7}, {"extrasgprs", 3}, {"totalnumvgprs", 2}, {"alignto", 2}};

/// Refuse a function at the beginning of `text` that has fewer arguments than LLVM reads.
void refuse_too_few_arguments(StringRef text, int line) {
  for (const auto &[name, needed] : kFunctions) {
    StringRef rest = text;
    if (!rest.consume_front(name))
      continue;
    rest = rest.ltrim(" \t");
    if (!rest.consume_front("("))
      continue;
    unsigned depth = 1, arguments = 1;
    for (const char c : rest.take_until([](char c) { return c == '\n'; })) {
      depth += (c == '(') - (c == ')');
      arguments += c == ',' && depth == 1;
      if (!depth)
        break;
    }
    if (arguments < needed)
      throw McError((name + " takes " + Twine(needed) + " arguments").str(), line);
  }
}

/// Refuse source that LLVM's parser does not survive. It never returns from an unterminated string or comment, and
/// parses and evaluates expressions recursively, so that a statement of a hundred thousand brackets would overflow the
/// stack.
void refuse_the_fatal(StringRef source) {
  constexpr unsigned kMostOperators = 2000; // in one line
  unsigned operators = 0;
  int line = 1;
  bool in_name = false;
  for (size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    const StringRef rest = source.substr(i);
    if (!in_name)
      refuse_too_few_arguments(rest, line);
    in_name = isAlnum(c) || StringRef("_.$@").contains(c);
    if (c == '\n') {
      ++line;
      operators = 0;
    } else if (c == '"') {
      const int start = line;
      for (++i; i < source.size() && source[i] != '"'; ++i) {
        line += source[i] == '\n';
        i += source[i] == '\\';
      }
      if (i >= source.size())
        throw McError("unterminated string", start);
    } else if (rest.starts_with("/*")) {
      const size_t end = source.find("*/", i + 2);
      if (end == StringRef::npos)
        throw McError("unterminated comment", line);
      line += int(source.slice(i, end).count('\n'));
      i = end + 1;
    } else if (c == ';' || rest.starts_with("//")) {
      i = std::min(source.find('\n', i), source.size()) - 1;
    } else if (StringRef("([{+-~!*/%|&^<>=").contains(c) && ++operators > kMostOperators) {
      throw McError("expression is too long", line);
    }
  }
}

} // namespace

AssemblyResult Isa::assemble(const std::string &source) const {
  refuse_the_fatal(source);
  AssemblyResult result;
  if (!survives([&] { assemble_into(source, result); }))
    throw McError("LLVM's assembler crashed on this source");
  return result;
}

void Isa::assemble_into(const std::string &source, AssemblyResult &result) const {
  SourceMgr sources;
  sources.AddNewSourceBuffer(MemoryBuffer::getMemBufferCopy(source, "assembly"), SMLoc());

  // The first error counts; those after it are often its consequence.
  std::optional<std::pair<std::string, int>> error;
  auto note = [&error](const SMDiagnostic &diagnostic) {
    if (diagnostic.getKind() == SourceMgr::DK_Error && !error)
      error = {diagnostic.getMessage().str(), std::max(0, diagnostic.getLineNo())};
  };
  sources.setDiagHandler(
      [](const SMDiagnostic &diagnostic, void *noter) { (*static_cast<decltype(note) *>(noter))(diagnostic); }, &note);
  MCContext context(triple_, asm_info_.get(), register_info_.get(), subtarget_.get(), &sources, &options_);
  context.setDiagnosticHandler([&note](const SMDiagnostic &diagnostic, bool, const SourceMgr &,
                                       std::vector<const MDNode *> &) { note(diagnostic); });
  std::unique_ptr<MCObjectFileInfo> object_file(target_->createMCObjectFileInfo(context, /*PIC=*/true));
  context.setObjectFileInfo(object_file.get());

  std::unique_ptr<MCCodeEmitter> emitter(target_->createMCCodeEmitter(*instr_info_, context));
  // The parser may switch processor modes; it works on a subtarget of its own.
  MCSubtargetInfo &subtarget = context.getSubtargetCopy(*subtarget_);
  Collector collector(context, *this, *emitter, result);
  target_->createNullTargetStreamer(collector); // owned by the collector
  std::unique_ptr<MCAsmParser> parser(createMCAsmParser(sources, context, collector, *asm_info_));
  std::unique_ptr<MCTargetAsmParser> target_parser(
      target_->createMCAsmParser(subtarget, *parser, *instr_info_, options_));
  if (!target_parser)
    throw McError("LLVM has no assembly parser for this processor");
  parser->setTargetParser(*target_parser);
  const bool failed = parser->Run(/*NoInitialTextSection=*/false);
  collector.flush_data();
  if (error)
    throw McError(error->first, error->second);
  if (failed)
    throw McError("LLVM refused the source without giving a reason");
}

} // namespace luthier
