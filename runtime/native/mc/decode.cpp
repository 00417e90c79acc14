// From bytes to instructions, and what makes an instruction valid.
#include "isa.h"

#include "amdgpu_private.h"
#include "guard.h"
#include "interrupts.h"
#include "unused_fields.h"

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

/// Names of the operands op_sel, op_sel_hi, neg_lo, neg_hi, and their values.
using ModifierSummary = std::array<std::pair<unsigned, unsigned>, 4>;

ModifierSummary summarizeModifiers(const MCInst &inst, bool isPacked) {
  const OperandNames &names = operandNames();
  unsigned opSel = 0, opSelHi = 0, negLo = 0, negHi = 0;
  for (unsigned i = 0; i < names.modifiers.size(); ++i) {
    const int index = position(inst.getOpcode(), names.modifiers[i]);
    if (index < 0 || unsigned(index) >= inst.getNumOperands() || !inst.getOperand(unsigned(index)).isImm())
      continue;
    const auto modifiers = unsigned(inst.getOperand(unsigned(index)).getImm());
    opSel |= unsigned(bool(modifiers & OpSel0)) << i;
    if (isPacked) {
      opSelHi |= unsigned(bool(modifiers & OpSel1)) << i;
      negLo |= unsigned(bool(modifiers & Neg)) << i;
      negHi |= unsigned(bool(modifiers & NegHi)) << i;
    } else if (i == 0) {
      opSel |= unsigned(bool(modifiers & DestinationOpSel)) << 3;
    }
  }
  return {{{names.opSel, opSel}, {names.opSelHi, opSelHi}, {names.negLo, negLo}, {names.negHi, negHi}}};
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
  eraseSurplusOperands(inst);
  correctTiedOperands(inst);
  if (flags_[opcode] & FlatFlag)
    extendFlatOffset(inst);
  const MCInstrDesc &desc = instrInfo_->get(opcode);
  // LLVM's decoder and parser put 0 where some scalar opcodes (s_bitset*) read what they write.
  for (unsigned i = 0; i < std::min(inst.getNumOperands(), desc.getNumOperands()); ++i)
    if (desc.operands()[i].OperandType == MCOI::OPERAND_REGISTER && inst.getOperand(i).isImm())
      if (const int tied = tiedTo(opcode, i); tied >= 0)
        inst.getOperand(i) = inst.getOperand(unsigned(tied));
  if (inst.getNumOperands() < desc.getNumOperands())
    addMissingOperands(inst);
}

void Isa::eraseSurplusOperands(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode(), count = instrInfo_->get(opcode).getNumOperands();
  // The parser gives some buffer atomics a swz operand that their opcode does not have.
  while (inst.getNumOperands() > count && inst.getOperand(inst.getNumOperands() - 1).isImm())
    inst.erase(inst.end() - 1);
  // DS instructions of gfx90a and later have no gds bit. LLVM's decoder inserts the gds operand after it has added the
  // tied operand, which is then there twice.
  if (inst.getNumOperands() != count + 1 || count == 0)
    return;
  const MCOperand &last = inst.getOperand(count - 1), &extra = inst.getOperand(count);
  if (tiedTo(opcode, count - 1) >= 0 && last.isReg() && extra.isReg() && last.getReg() == extra.getReg())
    inst.erase(inst.end() - 1);
}

void Isa::correctTiedOperands(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  if (inst.getNumOperands() != instrInfo_->get(opcode).getNumOperands())
    return;
  // LLVM's decoder reads the tied operand of the second half of a dual operation from the field of vdstY, which lacks
  // the lowest bit, and leaves 0 for vdst_in in some DPP forms.
  for (const unsigned name : {operandNames().src2Y, operandNames().vdstIn}) {
    const int index = position(opcode, name), tied = index < 0 ? -1 : tiedTo(opcode, unsigned(index));
    if (tied >= 0)
      inst.getOperand(unsigned(index)) = inst.getOperand(unsigned(tied));
  }
}

/// LLVM decodes the bits of the field, but assembles the number that they stand for. Here it is always the number.
void Isa::extendFlatOffset(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  const int index = position(opcode, operandNames().offset);
  const bool isSigned = (flags_[opcode] & SegmentFlags) || generation_ >= 12;
  if (!isSigned || index < 0 || unsigned(index) >= inst.getNumOperands() || !inst.getOperand(unsigned(index)).isImm())
    return;
  MCOperand &offset = inst.getOperand(unsigned(index));
  offset.setImm(SignExtend64(uint64_t(offset.getImm()), flatOffsetBits_));
}

void Isa::addMissingOperands(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  const MCInstrDesc &desc = instrInfo_->get(opcode);
  const ModifierSummary summary = summarizeModifiers(inst, desc.TSFlags & VOP3P);
  while (inst.getNumOperands() < desc.getNumOperands()) {
    const unsigned next = inst.getNumOperands();
    const int tied = tiedTo(opcode, next);
    const auto named =
        llvm::find_if(summary, [&](const auto &entry) { return position(opcode, entry.first) == int(next); });
    if (tied >= 0 && unsigned(tied) < next)
      inst.addOperand(MCOperand(inst.getOperand(unsigned(tied))));
    else if (named != summary.end())
      inst.addOperand(MCOperand::createImm(named->second));
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

/// One call of Isa::decode.
class Isa::Decoder {
public:
  Decoder(const Isa &isa, ArrayRef<uint8_t> code, uint64_t address, bool patient);
  ~Decoder();
  Instructions decode();

private:
  void decodeRest();
  void decodeNext();
  bool attempt(ArrayRef<uint8_t> bytes);
  bool attemptCleared(const Words &original);
  bool appendRepeat(ArrayRef<uint8_t> bytes);
  void appendUndecodable();
  void finish(size_t size, int32_t opcode, uint32_t flags, int64_t target);
  /// Return the bytes from `offset_` on, at least LongestInstruction of them.
  ArrayRef<uint8_t> rest() const {
    return offset_ < tailStart_ ? code_.drop_front(offset_) : ArrayRef<uint8_t>(tail_).drop_front(offset_ - tailStart_);
  }

  const Isa &isa_;
  const ArrayRef<uint8_t> code_;
  const uint64_t address_;
  const bool patient_;
  const size_t tailStart_;
  std::vector<uint8_t> tail_; ///< the end of the code, and LongestInstruction zeros
  std::unique_ptr<Repeats> repeats_;
  Instructions out_;
  size_t offset_ = 0, crashedAt_ = SIZE_MAX;
  MCDisassembler *disassembler_ = nullptr;
  MCInst *inst_ = nullptr;
  uint64_t size_ = 0; ///< of *inst_, in bytes
};

Instructions Isa::decode(ArrayRef<uint8_t> code, uint64_t address, bool patient) const {
  return Decoder(*this, code, address, patient).decode();
}

// LLVM may crash on a literal beyond the end of the bytes. So the end is decoded from a copy followed by zeros, and an
// instruction that reaches into the zeros is undecodable.
Isa::Decoder::Decoder(const Isa &isa, ArrayRef<uint8_t> code, uint64_t address, bool patient)
    : isa_(isa), code_(code), address_(address), patient_(patient),
      tailStart_(code.size() > LongestInstruction ? code.size() - LongestInstruction : 0),
      tail_(code.begin() + tailStart_, code.end()) {
  tail_.resize(tail_.size() + LongestInstruction);
  const size_t estimate = code.size() / 6 + 1;
  out_.offset.reserve(estimate);
  out_.size.reserve(estimate);
  out_.opcode.reserve(estimate);
  out_.flags.reserve(estimate);
  out_.target.reserve(estimate);
  out_.operandStart.reserve(estimate + 1);
  out_.operandKind.reserve(estimate * 6);
  out_.operandValue.reserve(estimate * 6);
  out_.operandStart.push_back(0);
  {
    // One thread at a time takes the repeats. Other threads start with empty ones, and keep theirs to themselves.
    const std::lock_guard<std::mutex> lock(isa.repeatsLock_);
    repeats_ = std::move(isa.repeats_);
  }
  if (!repeats_)
    repeats_ = std::make_unique<Repeats>();
}

Isa::Decoder::~Decoder() {
  const std::lock_guard<std::mutex> lock(isa_.repeatsLock_);
  isa_.repeats_ = std::move(repeats_);
}

Instructions Isa::Decoder::decode() {
  while (offset_ < code_.size())
    if (!survives([&] { decodeRest(); })) { // at `offset_`
      if (offset_ == crashedAt_ || patient_)
        appendUndecodable();
      else
        crashedAt_ = offset_; // perhaps for lack of bytes
    }
  return std::move(out_);
}

// The objects of LLVM are local: after a crash they must not be used again, nor destroyed.
void Isa::Decoder::decodeRest() {
  MCContext context(isa_.triple_, isa_.asmInfo_.get(), isa_.registerInfo_.get(), isa_.subtarget_.get());
  std::unique_ptr<MCDisassembler> disassembler(isa_.target_->createMCDisassembler(*isa_.subtarget_, context));
  if (!disassembler)
    throw McError("LLVM has no disassembler for this processor");
  MCInst inst;
  disassembler_ = disassembler.get();
  inst_ = &inst;
  while (offset_ < code_.size()) {
    answerSignals();
    decodeNext();
  }
}

void Isa::Decoder::decodeNext() {
  const ArrayRef<uint8_t> all = rest();
  const ArrayRef<uint8_t> some = patient_ || offset_ == crashedAt_ ? all : enough(all, isa_.generation_);
  const bool isShort = some.size() <= 8 && !isa_.wide();
  if (isShort && appendRepeat(some))
    return;
  bool decoded = false, isEnough = false;
  if (isa_.wide() && isScaleHalf(wordsOf(all), true)) {
    decoded = attemptCleared(wordsOf(all)) || attempt(all);
  } else {
    isEnough = attempt(some);
    decoded = isEnough || (some.size() < all.size() && attempt(all)) || attemptCleared(wordsOf(all));
  }
  for (unsigned i = 0; decoded && i < inst_->getNumOperands(); ++i)
    decoded = isa_.append(inst_->getOperand(i), out_);
  if (!decoded)
    return appendUndecodable();
  finish(size_, int32_t(inst_->getOpcode()), isa_.flags_[inst_->getOpcode()],
         isa_.branchTarget(*inst_, address_ + offset_, size_));
  if (isShort && isEnough && out_.target.back() == NoTarget)
    repeats_->note(some, out_);
}

/// Decode `bytes`; return whether this processor has the instruction.
bool Isa::Decoder::attempt(ArrayRef<uint8_t> bytes) {
  inst_->clear();
  if (disassembler_->getInstruction(*inst_, size_, bytes, address_ + offset_, nulls()) == MCDisassembler::Fail ||
      size_ == 0 || size_ > code_.size() - offset_)
    return false;
  isa_.complete(*inst_, bytes, size_);
  return isa_.problem(*inst_) == nullptr;
}

/// Decode a copy of the words in which unused fields have the values that LLVM wants there.
bool Isa::Decoder::attemptCleared(const Words &original) {
  const std::vector<UnusedField> fields = unusedFields(original, isa_.wide());
  Words shown = original;
  for (const UnusedField &field : fields)
    field.setIn(shown);
  if (shown == original || !attempt(bytesOf(shown)))
    return false;
  const unsigned opcode = inst_->getOpcode();
  const Words cleared = shown;
  for (const UnusedField &field : fields)
    if (field.operand != UnusedField::NoOperand && position(opcode, field.operand) >= 0)
      field.copy(original, shown); // this instruction uses it
  if (shown == cleared)
    return true;
  return shown != original && attempt(bytesOf(shown)) && inst_->getOpcode() == opcode;
}

/// Append what the bytes were decoded as before; false where that is not known.
bool Isa::Decoder::appendRepeat(ArrayRef<uint8_t> bytes) {
  const size_t size = repeats_->find(bytes, code_.size() - offset_, out_);
  if (size == 0)
    return false;
  out_.offset.push_back(int64_t(offset_));
  out_.target.push_back(NoTarget);
  offset_ += size;
  return true;
}

/// Append an instruction without opcode and operands.
void Isa::Decoder::appendUndecodable() {
  out_.operandKind.resize(size_t(out_.operandStart.back()));
  out_.operandValue.resize(size_t(out_.operandStart.back()));
  const size_t length = isa_.wide() ? lengthOfEncoding(wordsOf(rest())) : 0, left = code_.size() - offset_;
  const bool isKnown = length && length <= left;
  finish(isKnown ? length : std::min<size_t>(4, left), -1, isKnown ? LengthFlag : 0, NoTarget);
}

/// Append all columns but the operands, which are there already, and go on behind the instruction.
void Isa::Decoder::finish(size_t size, int32_t opcode, uint32_t flags, int64_t target) {
  out_.offset.push_back(int64_t(offset_));
  out_.size.push_back(int32_t(size));
  out_.opcode.push_back(opcode);
  out_.flags.push_back(flags);
  out_.target.push_back(target);
  out_.operandStart.push_back(int32_t(out_.operandKind.size()));
  offset_ += size;
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
