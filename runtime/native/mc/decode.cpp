// From bytes to instructions, and what makes an instruction valid.
#include "isa.h"

#include "amdgpu_private.h"
#include "guard.h"
#include "interrupts.h"
#include "unused_fields.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace luthier {
namespace {

int position(unsigned opcode, unsigned name) {
  return AMDGPU::getNamedOperandIdx(uint16_t(opcode), static_cast<AMDGPU::OpName>(name));
}

// Bits of the src*_modifiers operands (SISrcMods in LLVM's private SIDefines.h).
enum SourceModifier : unsigned { Neg = 1, NegHi = 2, OpSel0 = 4, OpSel1 = 8, DestinationOpSel = 8 };

constexpr uint64_t VOP3P = uint64_t(1) << 12; // in TSFlags

/// True of a 9-bit source field that is no operand but says that more words follow: DPP8, SDWA, DPP, literals.
bool announcesMore(uint32_t field) {
  field &= 0x1ff;
  return field == 233 || field == 234 || field == 249 || field == 250 || field == 254 || field == 255;
}

/// The bytes that are enough to decode the instruction at `bytes`, or all where that is not clear.
///
/// LLVM tries its tables from the longest encoding down to the shortest, as far as there are bytes, so offering fewer
/// makes it several times faster. It may be fewer than the instruction has: then decoding fails, and is tried again
/// with all bytes.
ArrayRef<uint8_t> enough(ArrayRef<uint8_t> bytes, unsigned generation) {
  const uint32_t first = support::endian::read32le(bytes.data());
  if (first >> 31 == 0) // VOP1, VOP2, VOPC
    return announcesMore(first) ? bytes : bytes.take_front(4);
  if (first >> 30 == 2) // scalar ALU: a source of 255 is a literal
    return (first & 0xff) == 0xff || (first >> 8 & 0xff) == 0xff ? bytes : bytes.take_front(4);
  if (generation == 9 && first >> 23 == 0x1a7) // VOP3P: on gfx950 some have 16 bytes
    return bytes;
  const uint32_t second = support::endian::read32le(bytes.data() + 4);
  return second >> 24 == 0xff || announcesMore(first) || announcesMore(second) || announcesMore(second >> 9) ||
                 announcesMore(second >> 18)
             ? bytes
             : bytes.take_front(8);
}

Words wordsOf(ArrayRef<uint8_t> bytes) {
  Words words;
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = support::endian::read32le(bytes.data() + 4 * i);
  return words;
}

std::array<uint8_t, LongestInstruction> bytesOf(const Words &words) {
  std::array<uint8_t, LongestInstruction> bytes;
  for (size_t i = 0; i < words.size(); ++i)
    support::endian::write32le(bytes.data() + 4 * i, words[i]);
  return bytes;
}

/// The single that an inline constant stands for whose half is `bits`; 0 where it is none.
int64_t singleOf(int64_t bits) {
  if (bits == 0x3118) // 1 / (2 pi), rounded
    return 0x3e22f983;
  const int64_t magnitude = bits & 0x7fff;
  const bool isPower = magnitude == 0x3800 || magnitude == 0x3c00 || magnitude == 0x4000 || magnitude == 0x4400;
  return isPower && bits >> 16 == 0 ? (bits & 0x8000) << 16 | ((magnitude << 13) + (int64_t(127 - 15) << 23)) : 0;
}

} // namespace

/// LLVM's decoder gives a float that is encoded inline in a 16-bit integer as a half. Its encoder, parser and printer
/// have a single there, for the low half of that is what hardware takes (AMDGPUBaseInfo.cpp, getInlineEncodingV216; the
/// ISA documents say of the second source of v_ldexp_f16 that it is a half there, and LLVM's operand type does).
void Isa::complete(MCInst &inst, ArrayRef<uint8_t> bytes, uint64_t size) const {
  complete(inst);
  const unsigned opcode = inst.getOpcode(), encoded = instrInfo_->get(opcode).getSize();
  const auto operands = instrInfo_->get(opcode).operands();
  for (unsigned at = 0; at < std::min(inst.getNumOperands(), unsigned(operands.size())); ++at) {
    if (!inst.getOperand(at).isImm() || !tables_.shortIntegers.count(operands[at].OperandType))
      continue;
    const auto &sources = operandNames().sources;
    const auto named = llvm::find_if(sources, [&](unsigned name) { return position(opcode, name) == int(at); });
    const unsigned place = unsigned(named - sources.begin());
    // A literal may have the same bits. Fields of sources: VOP3 has those of 9 bits in its second word.
    const bool isLiteral =
        size > encoded &&
        (named == sources.end() ||
         (encoded == 4 ? bytes[place] : support::endian::read32le(bytes.data() + 4) >> 9 * place & 0x1ff) == 0xff);
    if (const int64_t single = singleOf(inst.getOperand(at).getImm()); single && !isLiteral)
      inst.getOperand(at).setImm(single);
  }
}

void Isa::complete(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  if (opcode >= flags_.size())
    return;
  const MCInstrDesc &desc = instrInfo_->get(opcode);
  const OperandNames &names = operandNames();
  // The parser gives some buffer atomics a swz operand that their opcode does not have.
  while (inst.getNumOperands() > desc.getNumOperands() && inst.getOperand(inst.getNumOperands() - 1).isImm())
    inst.erase(inst.end() - 1);
  // gfx90a and later have no gds bit in DS instructions. LLVM's decoder puts the operand in when it has already seen to
  // the tied one, which is then there twice.
  if (inst.getNumOperands() == desc.getNumOperands() + 1 && desc.getNumOperands() > 0) {
    const unsigned last = desc.getNumOperands() - 1;
    const MCOperand &kept = inst.getOperand(last), &extra = inst.getOperand(last + 1);
    if (tiedTo(opcode, last) >= 0 && kept.isReg() && extra.isReg() && kept.getReg() == extra.getReg())
      inst.erase(inst.end() - 1);
  }
  // LLVM's decoder takes the tied operand of a dual operation's second half from the field of vdstY, which lacks the
  // lowest bit, and leaves 0 for vdst_in in some DPP forms.
  for (const unsigned name : {names.src2Y, names.vdstIn}) {
    const int at = position(opcode, name);
    if (at < 0 || inst.getNumOperands() != desc.getNumOperands())
      continue;
    const int tied = tiedTo(opcode, unsigned(at));
    if (tied >= 0)
      inst.getOperand(unsigned(at)) = inst.getOperand(unsigned(tied));
  }
  // Decoded as the bits of its field, assembled as the number it stands for: it is the number here.
  if (flags_[opcode] & FlatFlag) {
    const int at = position(opcode, names.offset);
    const bool isSigned = (flags_[opcode] & SegmentFlags) || generation_ >= 12;
    if (isSigned && at >= 0 && unsigned(at) < inst.getNumOperands() && inst.getOperand(unsigned(at)).isImm()) {
      MCOperand &offset = inst.getOperand(unsigned(at));
      offset.setImm(SignExtend64(uint64_t(offset.getImm()), flatOffsetBits_));
    }
  }
  // LLVM's decoder and parser put 0 where some scalar opcodes (s_bitset*) read what they write.
  for (unsigned i = 0; i < std::min(inst.getNumOperands(), desc.getNumOperands()); ++i)
    if (desc.operands()[i].OperandType == MCOI::OPERAND_REGISTER && inst.getOperand(i).isImm())
      if (const int tied = tiedTo(opcode, i); tied >= 0)
        inst.getOperand(i) = inst.getOperand(unsigned(tied));
  if (inst.getNumOperands() >= desc.getNumOperands())
    return;
  unsigned opSel = 0, opSelHi = 0, negLo = 0, negHi = 0;
  for (unsigned i = 0; i < names.modifiers.size(); ++i) {
    const int at = position(opcode, names.modifiers[i]);
    if (at < 0 || unsigned(at) >= inst.getNumOperands() || !inst.getOperand(unsigned(at)).isImm())
      continue;
    const auto modifiers = unsigned(inst.getOperand(unsigned(at)).getImm());
    opSel |= unsigned(bool(modifiers & OpSel0)) << i;
    if (desc.TSFlags & VOP3P) {
      opSelHi |= unsigned(bool(modifiers & OpSel1)) << i;
      negLo |= unsigned(bool(modifiers & Neg)) << i;
      negHi |= unsigned(bool(modifiers & NegHi)) << i;
    } else if (i == 0) {
      opSel |= unsigned(bool(modifiers & DestinationOpSel)) << 3;
    }
  }
  while (inst.getNumOperands() < desc.getNumOperands()) {
    const unsigned next = inst.getNumOperands();
    const int tied = tiedTo(opcode, next);
    if (tied >= 0 && unsigned(tied) < next)
      inst.addOperand(MCOperand(inst.getOperand(unsigned(tied))));
    else if (position(opcode, names.opSel) == int(next))
      inst.addOperand(MCOperand::createImm(opSel));
    else if (position(opcode, names.opSelHi) == int(next))
      inst.addOperand(MCOperand::createImm(opSelHi));
    else if (position(opcode, names.negLo) == int(next))
      inst.addOperand(MCOperand::createImm(negLo));
    else if (position(opcode, names.negHi) == int(next))
      inst.addOperand(MCOperand::createImm(negHi));
    else
      return;
  }
}

int Isa::tiedTo(unsigned opcode, unsigned operand) const {
  const MCInstrDesc &desc = instrInfo_->get(opcode);
  int tied = desc.getOperandConstraint(operand, MCOI::TIED_TO);
  const MCInstrDesc &generic = instrInfo_->get(genericOpcode(opcode));
  // LLVM does not copy every constraint of a generic opcode to the real ones. It is right not to for matrix operations:
  // their encoding has a field for src2, and one real opcode stands for the generic ones with two and three addresses.
  if (tied < 0 && generic.getNumOperands() == desc.getNumOperands() && !(flags_[opcode] & MatrixFlag))
    tied = generic.getOperandConstraint(operand, MCOI::TIED_TO);
  // The generic ones of a few conversions have none, though no encoding has a field for vdst_in.
  return tied < 0 && position(opcode, operandNames().vdstIn) == int(operand) ? 0 : tied;
}

const char *Isa::problem(const MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  if (opcode >= flags_.size())
    return "the opcode does not exist";
  const MCInstrDesc &desc = instrInfo_->get(opcode);
  if (desc.isPseudo())
    return "the opcode has no encoding";
  if (inst.getNumOperands() != desc.getNumOperands())
    return "the number of operands is wrong";
  for (unsigned i = 0; i < desc.getNumOperands(); ++i) {
    const MCOperandInfo &info = desc.operands()[i];
    const MCOperand &operand = inst.getOperand(i);
    const int id = registerClass(info);
    if (info.RegClass != -1 && (id < 0 || registerInfo_->getRegClass(unsigned(id)).getNumRegs() == 0))
      return "the opcode is not of this processor";
    if (operand.isReg()) {
      const MCRegister given = operand.getReg();
      if (!given) {
        if (!(flags_[opcode] & ExportFlag) && int(i) != position(opcode, operandNames().old))
          return "a register is missing";
        continue;
      }
      if (id < 0)
        return "a register is given where there can be none";
      const MCRegisterClass &wanted = registerInfo_->getRegClass(unsigned(id));
      if (wanted.contains(given))
        continue;
      const MCRegister generic = AMDGPU::mc2PseudoReg(given);
      if (wanted.contains(generic) || AMDGPU::isInlineValue(generic))
        continue;
      // From gfx90a on LLVM's tables give ds_gws_* a pair, to have it aligned; it decodes and parses one register.
      const auto around = registerInfo_->superregs(given);
      if (!(flags_[opcode] & GwsFlag) || !any_of(around, [&](MCPhysReg one) { return wanted.contains(one); }))
        return "a register is not of the class that the operand takes";
    } else if (id >= 0 && info.OperandType == MCOI::OPERAND_REGISTER) {
      return "an operand must be a register";
    }
  }
  if (flags_[opcode] & SdwaFlag) {
    const OperandNames &names = operandNames();
    auto above = [&](unsigned name, int64_t most) {
      const int at = position(opcode, name);
      return at >= 0 && (!inst.getOperand(unsigned(at)).isImm() ||
                         uint64_t(inst.getOperand(unsigned(at)).getImm()) > uint64_t(most));
    };
    for (const unsigned select : names.selects)
      if (above(select, 6))
        return "an SDWA selection is reserved";
    if (above(names.dstUnused, 2))
      return "an SDWA dst_unused value is reserved";
  }
  return nullptr;
}

Instructions Isa::decode(ArrayRef<uint8_t> code, uint64_t address, bool patient) const {
  Instructions out;
  const size_t estimate = code.size() / 6 + 1;
  out.offset.reserve(estimate);
  out.size.reserve(estimate);
  out.opcode.reserve(estimate);
  out.flags.reserve(estimate);
  out.target.reserve(estimate);
  out.operandStart.reserve(estimate + 1);
  out.operandKind.reserve(estimate * 6);
  out.operandValue.reserve(estimate * 6);
  out.operandStart.push_back(0);

  auto finish = [&out](size_t offset, size_t size, int32_t opcode, uint32_t flags, int64_t target) {
    out.offset.push_back(int64_t(offset));
    out.size.push_back(int32_t(size));
    out.opcode.push_back(opcode);
    out.flags.push_back(flags);
    out.target.push_back(target);
    out.operandStart.push_back(int32_t(out.operandKind.size()));
    return size;
  };
  auto undecodable = [&](size_t offset, unsigned length) {
    out.operandKind.resize(size_t(out.operandStart.back()));
    out.operandValue.resize(size_t(out.operandStart.back()));
    const bool known = length && length <= code.size() - offset;
    return finish(offset, known ? length : std::min<size_t>(4, code.size() - offset), -1, known ? LengthFlag : 0,
                  NoTarget);
  };

  // Taken by one thread at a time; others find nothing there, and keep what they find to themselves.
  std::unique_ptr<Repeats> repeats;
  {
    const std::lock_guard<std::mutex> lock(repeatsLock_);
    repeats = std::move(repeats_);
  }
  if (!repeats)
    repeats = std::make_unique<Repeats>();
  const scope_exit giveBack([&] {
    const std::lock_guard<std::mutex> lock(repeatsLock_);
    repeats_ = std::move(repeats);
  });

  // LLVM refuses a literal beyond the end of the bytes in a way that is hard to survive, so the end is decoded from a
  // copy with zeros after it; an instruction that reaches into them is none.
  const size_t tailStart = code.size() > LongestInstruction ? code.size() - LongestInstruction : 0;
  std::vector<uint8_t> tail(code.begin() + tailStart, code.end());
  tail.resize(tail.size() + LongestInstruction);

  size_t offset = 0, crashedAt = SIZE_MAX;
  auto from = [&](size_t offset) { // LongestInstruction bytes at least
    return offset < tailStart ? code.drop_front(offset) : ArrayRef<uint8_t>(tail).drop_front(offset - tailStart);
  };
  auto length = [&](size_t offset) { return wide() ? lengthOfEncoding(wordsOf(from(offset))) : 0; };
  auto decodeRest = [&] {
    MCContext context(triple_, asmInfo_.get(), registerInfo_.get(), subtarget_.get());
    std::unique_ptr<MCDisassembler> disassembler(target_->createMCDisassembler(*subtarget_, context));
    if (!disassembler)
      throw McError("LLVM has no disassembler for this processor");
    MCInst inst;
    while (offset < code.size()) {
      answerSignals();
      const ArrayRef<uint8_t> all = from(offset);
      uint64_t size = 0;
      auto attempt = [&](ArrayRef<uint8_t> bytes) {
        inst.clear();
        if (disassembler->getInstruction(inst, size, bytes, address + offset, nulls()) == MCDisassembler::Fail ||
            size == 0 || size > code.size() - offset)
          return false;
        complete(inst, bytes, size);
        return problem(inst) == nullptr;
      };
      // The bytes stay as they are in the code; only what LLVM is shown has unused fields as it wants them.
      auto attemptCleared = [&](const Words &original) {
        const std::vector<UnusedField> fields = unusedFields(original, wide());
        Words shown = original;
        for (const UnusedField &field : fields)
          field.setIn(shown);
        if (shown == original || !attempt(bytesOf(shown)))
          return false;
        const unsigned opcode = inst.getOpcode();
        const Words cleared = shown;
        for (const UnusedField &field : fields)
          if (field.operand != UnusedField::NoOperand && position(opcode, field.operand) >= 0)
            field.copy(original, shown); // this instruction uses it
        if (shown == cleared)
          return true;
        return shown != original && attempt(bytesOf(shown)) && inst.getOpcode() == opcode;
      };
      const ArrayRef<uint8_t> some = patient || offset == crashedAt ? all : enough(all, generation_);
      const bool few = some.size() <= 8 && !wide();
      if (few)
        if (const size_t size = repeats->find(some, code.size() - offset, out)) {
          out.offset.push_back(int64_t(offset));
          out.target.push_back(NoTarget);
          offset += size;
          continue;
        }
      bool good = false, byFew = false;
      if (wide() && isScaleHalf(wordsOf(all), true))
        good = attemptCleared(wordsOf(all)) || attempt(all);
      else
        good = (byFew = attempt(some)) || (some.size() < all.size() && attempt(all)) || attemptCleared(wordsOf(all));
      for (size_t i = 0; good && i < inst.getNumOperands(); ++i)
        good = append(inst.getOperand(unsigned(i)), out);
      if (good) {
        offset += finish(offset, size, int32_t(inst.getOpcode()), flags_[inst.getOpcode()],
                         branchTarget(inst, address + offset, size));
        if (few && byFew && out.target.back() == NoTarget)
          repeats->note(some, out);
      } else {
        offset += undecodable(offset, length(offset));
      }
    }
  };
  while (offset < code.size())
    if (!survives(decodeRest)) { // at `offset`
      if (offset == crashedAt || patient)
        offset += undecodable(offset, length(offset));
      else
        crashedAt = offset; // perhaps for the lack of bytes
    }
  return out;
}

bool Isa::append(const MCOperand &operand, Instructions &out) const {
  if (operand.isReg()) {
    out.operandKind.push_back(KindRegister);
    out.operandValue.push_back(operand.getReg().id());
  } else if (operand.isImm()) {
    out.operandKind.push_back(KindImmediate);
    out.operandValue.push_back(operand.getImm());
  } else if (operand.isExpr() && AMDGPU::isLitExpr(operand.getExpr())) {
    out.operandKind.push_back(literalKind(*operand.getExpr()));
    out.operandValue.push_back(AMDGPU::getLitValue(operand.getExpr()));
  } else if (int64_t number; operand.isExpr() && operand.getExpr()->evaluateAsAbsolute(number)) {
    out.operandKind.push_back(KindImmediate); // the decoder gives s_version a symbol
    out.operandValue.push_back(number);
  } else {
    return false;
  }
  return true;
}

} // namespace luthier
