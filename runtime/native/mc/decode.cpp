// Decodes bytes to instructions, and checks that instructions are valid.
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
enum SourceModifier : unsigned { kNeg = 1, kNegHi = 2, kOpSel0 = 4, kOpSel1 = 8, kDestinationOpSel = 8 };

constexpr uint64_t kVop3p = uint64_t(1) << 12; // in TSFlags

/// Return whether a 9-bit source field announces more words instead of an operand: DPP8, SDWA, DPP, literals.
bool announces_more(uint32_t field) {
  field &= 0x1ff;
  return field == 233 || field == 234 || field == 249 || field == 250 || field == 254 || field == 255;
}

/// Return the bytes that are enough to decode the instruction at `bytes`, or all if that is not clear.
///
/// LLVM tries its tables from the longest encoding that the bytes allow to the shortest, so fewer bytes make it several
/// times faster. They may be fewer than the instruction has: then decoding fails, and is tried again with all bytes.
ArrayRef<uint8_t> enough(ArrayRef<uint8_t> bytes, unsigned generation) {
  const uint32_t first = support::endian::read32le(bytes.data());
  if (first >> 31 == 0) // VOP1, VOP2, VOPC
    return announces_more(first) ? bytes : bytes.take_front(4);
  if (first >> 30 == 2) // scalar ALU: a source of 255 is a literal
    return (first & 0xff) == 0xff || (first >> 8 & 0xff) == 0xff ? bytes : bytes.take_front(4);
  if (generation == 9 && first >> 23 == 0x1a7) // VOP3P: on gfx950 some have 16 bytes
    return bytes;
  const uint32_t second = support::endian::read32le(bytes.data() + 4);
  return second >> 24 == 0xff || announces_more(first) || announces_more(second) || announces_more(second >> 9) ||
                 announces_more(second >> 18)
             ? bytes
             : bytes.take_front(8);
}

Words words_of(ArrayRef<uint8_t> bytes) {
  Words words;
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = support::endian::read32le(bytes.data() + 4 * i);
  return words;
}

std::array<uint8_t, kLongestInstruction> bytes_of(const Words &words) {
  std::array<uint8_t, kLongestInstruction> bytes;
  for (size_t i = 0; i < words.size(); ++i)
    support::endian::write32le(bytes.data() + 4 * i, words[i]);
  return bytes;
}

/// Return the single-precision value of the inline constant whose half-precision value is `bits`; 0 if it is none.
int64_t single_of(int64_t bits) {
  if (bits == 0x3118) // 1 / (2 pi), rounded
    return 0x3e22f983;
  const int64_t magnitude = bits & 0x7fff;
  const bool is_power = magnitude == 0x3800 || magnitude == 0x3c00 || magnitude == 0x4000 || magnitude == 0x4400;
  return is_power && bits >> 16 == 0 ? (bits & 0x8000) << 16 | ((magnitude << 13) + (int64_t(127 - 15) << 23)) : 0;
}

/// Names of the operands op_sel, op_sel_hi, neg_lo, neg_hi, and their values.
using ModifierSummary = std::array<std::pair<unsigned, unsigned>, 4>;

ModifierSummary summarize_modifiers(const MCInst &inst, bool is_packed) {
  const OperandNames &names = operand_names();
  unsigned op_sel = 0, op_sel_hi = 0, neg_lo = 0, neg_hi = 0;
  for (unsigned i = 0; i < names.modifiers.size(); ++i) {
    const int index = position(inst.getOpcode(), names.modifiers[i]);
    if (index < 0 || unsigned(index) >= inst.getNumOperands() || !inst.getOperand(unsigned(index)).isImm())
      continue;
    const auto modifiers = unsigned(inst.getOperand(unsigned(index)).getImm());
    op_sel |= unsigned(bool(modifiers & kOpSel0)) << i;
    if (is_packed) {
      op_sel_hi |= unsigned(bool(modifiers & kOpSel1)) << i;
      neg_lo |= unsigned(bool(modifiers & kNeg)) << i;
      neg_hi |= unsigned(bool(modifiers & kNegHi)) << i;
    } else if (i == 0) {
      op_sel |= unsigned(bool(modifiers & kDestinationOpSel)) << 3;
    }
  }
  return {{{names.op_sel, op_sel}, {names.op_sel_hi, op_sel_hi}, {names.neg_lo, neg_lo}, {names.neg_hi, neg_hi}}};
}

} // namespace

/// LLVM's decoder gives a float that is encoded inline in a 16-bit integer as a half. Its encoder, parser and printer
/// use a single, because hardware takes the low half of that (AMDGPUBaseInfo.cpp, getInlineEncodingV216). The second
/// source of v_ldexp_f16 is a half, by the ISA documents and by LLVM's operand type.
void Isa::complete(MCInst &inst, ArrayRef<uint8_t> bytes, uint64_t size) const {
  complete(inst);
  const unsigned opcode = inst.getOpcode(), encoded = instr_info_->get(opcode).getSize();
  const auto operands = instr_info_->get(opcode).operands();
  for (unsigned at = 0; at < std::min(inst.getNumOperands(), unsigned(operands.size())); ++at) {
    if (!inst.getOperand(at).isImm() || !tables_.short_integers.count(operands[at].OperandType))
      continue;
    const auto &sources = operand_names().sources;
    const auto named = llvm::find_if(sources, [&](unsigned name) { return position(opcode, name) == int(at); });
    const unsigned place = unsigned(named - sources.begin());
    // A literal may have the same bits. Fields of sources: VOP3 has those of 9 bits in its second word.
    const bool is_literal =
        size > encoded &&
        (named == sources.end() ||
         (encoded == 4 ? bytes[place] : support::endian::read32le(bytes.data() + 4) >> 9 * place & 0x1ff) == 0xff);
    if (const int64_t single = single_of(inst.getOperand(at).getImm()); single && !is_literal)
      inst.getOperand(at).setImm(single);
  }
}

void Isa::complete(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  if (opcode >= flags_.size())
    return;
  erase_surplus_operands(inst);
  correct_tied_operands(inst);
  if (flags_[opcode] & kFlatFlag)
    extend_flat_offset(inst);
  const MCInstrDesc &desc = instr_info_->get(opcode);
  // LLVM's decoder and parser put 0 for the operand that some scalar opcodes (s_bitset*) read and write.
  for (unsigned i = 0; i < std::min(inst.getNumOperands(), desc.getNumOperands()); ++i)
    if (desc.operands()[i].OperandType == MCOI::OPERAND_REGISTER && inst.getOperand(i).isImm())
      if (const int tied = tied_to(opcode, i); tied >= 0)
        inst.getOperand(i) = inst.getOperand(unsigned(tied));
  if (inst.getNumOperands() < desc.getNumOperands())
    add_missing_operands(inst);
}

void Isa::erase_surplus_operands(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode(), count = instr_info_->get(opcode).getNumOperands();
  // The parser gives some buffer atomics a swz operand that their opcode does not have.
  while (inst.getNumOperands() > count && inst.getOperand(inst.getNumOperands() - 1).isImm())
    inst.erase(inst.end() - 1);
  // DS instructions of gfx90a and later have no gds bit. LLVM's decoder inserts the gds operand after it has added the
  // tied operand, which is then there twice.
  if (inst.getNumOperands() != count + 1 || count == 0)
    return;
  const MCOperand &last = inst.getOperand(count - 1), &extra = inst.getOperand(count);
  if (tied_to(opcode, count - 1) >= 0 && last.isReg() && extra.isReg() && last.getReg() == extra.getReg())
    inst.erase(inst.end() - 1);
}

void Isa::correct_tied_operands(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  if (inst.getNumOperands() != instr_info_->get(opcode).getNumOperands())
    return;
  // LLVM's decoder reads the tied operand of the second half of a dual operation from the field of vdstY, which lacks
  // the lowest bit, and leaves 0 for vdst_in in some DPP forms.
  for (const unsigned name : {operand_names().src2_y, operand_names().vdst_in}) {
    const int index = position(opcode, name), tied = index < 0 ? -1 : tied_to(opcode, unsigned(index));
    if (tied >= 0)
      inst.getOperand(unsigned(index)) = inst.getOperand(unsigned(tied));
  }
}

/// LLVM decodes the bits of the field, but assembles the number that they stand for. Here it is always the number.
void Isa::extend_flat_offset(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  const int index = position(opcode, operand_names().offset);
  const bool is_signed = (flags_[opcode] & kSegmentFlags) || generation_ >= 12;
  if (!is_signed || index < 0 || unsigned(index) >= inst.getNumOperands() || !inst.getOperand(unsigned(index)).isImm())
    return;
  MCOperand &offset = inst.getOperand(unsigned(index));
  offset.setImm(SignExtend64(uint64_t(offset.getImm()), flat_offset_bits_));
}

void Isa::add_missing_operands(MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  const MCInstrDesc &desc = instr_info_->get(opcode);
  const ModifierSummary summary = summarize_modifiers(inst, desc.TSFlags & kVop3p);
  while (inst.getNumOperands() < desc.getNumOperands()) {
    const unsigned next = inst.getNumOperands();
    const int tied = tied_to(opcode, next);
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

int Isa::tied_to(unsigned opcode, unsigned operand) const {
  const MCInstrDesc &desc = instr_info_->get(opcode);
  int tied = desc.getOperandConstraint(operand, MCOI::TIED_TO);
  const MCInstrDesc &generic = instr_info_->get(generic_opcode(opcode));
  // LLVM does not copy every constraint of a generic opcode to the real ones. For matrix operations that is correct:
  // their encoding has a field for src2, and one real opcode stands for the generic ones with two and three addresses.
  if (tied < 0 && generic.getNumOperands() == desc.getNumOperands() && !(flags_[opcode] & kMatrixFlag))
    tied = generic.getOperandConstraint(operand, MCOI::TIED_TO);
  // The generic ones of a few conversions have none, though no encoding has a field for vdst_in.
  return tied < 0 && position(opcode, operand_names().vdst_in) == int(operand) ? 0 : tied;
}

const char *Isa::problem(const MCInst &inst) const {
  const unsigned opcode = inst.getOpcode();
  if (opcode >= flags_.size())
    return "the opcode does not exist";
  const MCInstrDesc &desc = instr_info_->get(opcode);
  if (desc.isPseudo())
    return "the opcode has no encoding";
  if (inst.getNumOperands() != desc.getNumOperands())
    return "the number of operands is wrong";
  for (unsigned i = 0; i < desc.getNumOperands(); ++i)
    if (const char *what = operand_problem(inst, i))
      return what;
  return flags_[opcode] & kSdwaFlag ? selection_problem(inst) : nullptr;
}

const char *Isa::operand_problem(const MCInst &inst, unsigned index) const {
  const unsigned opcode = inst.getOpcode();
  const MCOperandInfo &info = instr_info_->get(opcode).operands()[index];
  const MCOperand &operand = inst.getOperand(index);
  const int id = register_class(info);
  if (info.RegClass != -1 && (id < 0 || register_info_->getRegClass(unsigned(id)).getNumRegs() == 0))
    return "the opcode is not of this processor";
  if (!operand.isReg())
    return id >= 0 && info.OperandType == MCOI::OPERAND_REGISTER ? "an operand must be a register" : nullptr;
  const MCRegister given = operand.getReg();
  if (!given) {
    const bool may_lack = flags_[opcode] & kExportFlag || int(index) == position(opcode, operand_names().old);
    return may_lack ? nullptr : "a register is missing";
  }
  if (id < 0)
    return "a register is given where there can be none";
  const MCRegisterClass &wanted = register_info_->getRegClass(unsigned(id));
  if (wanted.contains(given))
    return nullptr;
  const MCRegister generic = AMDGPU::mc2PseudoReg(given);
  if (wanted.contains(generic) || AMDGPU::isInlineValue(generic))
    return nullptr;
  // From gfx90a on LLVM's tables give ds_gws_* a pair, to have it aligned; it decodes and parses one register.
  const auto around = register_info_->superregs(given);
  if (flags_[opcode] & kGwsFlag && any_of(around, [&](MCPhysReg reg) { return wanted.contains(reg); }))
    return nullptr;
  return "a register is not of the class that the operand takes";
}

bool Isa::takes(unsigned opcode, size_t operand, unsigned number, int64_t index) const {
  if (flags_[opcode] & kMatrixFlag || number >= register_info_->getNumRegs() || lacks_sgpr(number, index, 1))
    return false;
  const int id = register_class(instr_info_->get(opcode).operands()[operand]);
  return id >= 0 && register_info_->getRegClass(unsigned(id)).contains(MCRegister(number)) &&
         (register_info_->getEncodingValue(MCRegister(number)) & 0xff) == index;
}

const char *Isa::selection_problem(const MCInst &inst) const {
  const OperandNames &names = operand_names();
  const auto above = [&](unsigned name, int64_t most) {
    const int at = position(inst.getOpcode(), name);
    return at >= 0 && (!inst.getOperand(unsigned(at)).isImm() ||
                       uint64_t(inst.getOperand(unsigned(at)).getImm()) > uint64_t(most));
  };
  for (const unsigned select : names.selects)
    if (above(select, 6))
      return "an SDWA selection is reserved";
  return above(names.dst_unused, 2) ? "an SDWA dst_unused value is reserved" : nullptr;
}

/// One call of Isa::decode.
class Isa::Decoder {
public:
  Decoder(const Isa &isa, ArrayRef<uint8_t> code, uint64_t address, bool patient);
  ~Decoder();
  Instructions decode();

private:
  struct Llvm;

  void decode_rest();
  void decode_next();
  bool attempt(ArrayRef<uint8_t> bytes) { return attempt(bytes, code_.size() - offset_); }
  bool attempt(ArrayRef<uint8_t> bytes, size_t most);
  bool probe(uint64_t word, size_t given, Instructions &out);
  bool attempt_cleared(const Words &original);
  bool append_repeat();
  ArrayRef<uint8_t> some() const;
  bool is_short(ArrayRef<uint8_t> bytes) const { return bytes.size() <= 8 && !isa_.wide(); }
  void append_undecodable();
  void finish(size_t size, int32_t opcode, uint32_t flags, int64_t target);
  /// Return the bytes from `offset_` on, at least kLongestInstruction of them.
  ArrayRef<uint8_t> rest() const {
    return offset_ < tail_start_ ? code_.drop_front(offset_)
                                 : ArrayRef<uint8_t>(tail_).drop_front(offset_ - tail_start_);
  }

  const Isa &isa_;
  const ArrayRef<uint8_t> code_;
  const uint64_t address_;
  const bool patient_;
  const size_t tail_start_;
  std::vector<uint8_t> tail_; ///< the end of the code, and kLongestInstruction zeros
  std::unique_ptr<Repeats> repeats_;
  Instructions out_;
  size_t offset_ = 0, crashed_at_ = SIZE_MAX;
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
      tail_start_(code.size() > kLongestInstruction ? code.size() - kLongestInstruction : 0),
      tail_(code.begin() + tail_start_, code.end()) {
  tail_.resize(tail_.size() + kLongestInstruction);
  const size_t estimate = code.size() / 6 + 1;
  out_.offset.reserve(estimate);
  out_.size.reserve(estimate);
  out_.opcode.reserve(estimate);
  out_.flags.reserve(estimate);
  out_.target.reserve(estimate);
  out_.operand_start.reserve(estimate + 1);
  out_.operand_kind.reserve(estimate * 6);
  out_.operand_value.reserve(estimate * 6);
  out_.operand_start.push_back(0);
  {
    // One thread at a time takes the repeats. Other threads start with empty ones, and keep theirs to themselves.
    const std::lock_guard<std::mutex> lock(isa.repeats_lock_);
    repeats_ = std::move(isa.repeats_);
  }
  if (!repeats_)
    repeats_ = std::make_unique<Repeats>([&isa](int32_t opcode, size_t operand, int64_t reg, int64_t index) {
      return isa.takes(unsigned(opcode), operand, unsigned(reg), index);
    });
}

Isa::Decoder::~Decoder() {
  const std::lock_guard<std::mutex> lock(isa_.repeats_lock_);
  isa_.repeats_ = std::move(repeats_);
}

Instructions Isa::Decoder::decode() {
  while (offset_ < code_.size())
    if (!survives([&] { decode_rest(); })) { // at `offset_`
      if (offset_ == crashed_at_ || patient_)
        append_undecodable();
      else
        crashed_at_ = offset_; // perhaps for lack of bytes
    }
  return std::move(out_);
}

/// What LLVM decodes with.
struct Isa::Decoder::Llvm {
  MCContext context;
  std::unique_ptr<MCDisassembler> disassembler;
  MCInst inst;

  explicit Llvm(const Isa &isa)
      : context(isa.triple_, isa.asm_info_.get(), isa.register_info_.get(), isa.subtarget_.get()),
        disassembler(isa.target_->createMCDisassembler(*isa.subtarget_, context)) {
    if (!disassembler)
      throw McError("LLVM has no disassembler for this processor");
  }
};

// The objects of LLVM are local: after a crash they must not be used again, nor destroyed.
void Isa::Decoder::decode_rest() {
  std::unique_ptr<Llvm> llvm; // made when an instruction was not met before
  while (offset_ < code_.size()) {
    answer_signals();
    if (append_repeat())
      continue;
    if (!llvm)
      llvm = std::make_unique<Llvm>(isa_);
    disassembler_ = llvm->disassembler.get();
    inst_ = &llvm->inst;
    decode_next();
  }
}

/// Return the first bytes of the rest, as few as the next instruction probably has.
ArrayRef<uint8_t> Isa::Decoder::some() const {
  const ArrayRef<uint8_t> all = rest();
  return patient_ || offset_ == crashed_at_ ? all : enough(all, isa_.generation_);
}

void Isa::Decoder::decode_next() {
  const ArrayRef<uint8_t> all = rest(), first = some();
  bool decoded = false, is_enough = false;
  if (isa_.wide() && is_scale_half(words_of(all), true)) {
    decoded = attempt_cleared(words_of(all)) || attempt(all);
  } else {
    is_enough = attempt(first);
    decoded = is_enough || (first.size() < all.size() && attempt(all)) || attempt_cleared(words_of(all));
  }
  if (!decoded || !isa_.append(*inst_, out_))
    return append_undecodable();
  finish(size_, int32_t(inst_->getOpcode()), isa_.flags_[inst_->getOpcode()],
         isa_.branch_target(*inst_, address_ + offset_, size_));
  if (is_short(first) && is_enough && out_.target.back() == kNoTarget)
    repeats_->note(first, out_, [&](uint64_t word, Instructions &out) { return probe(word, first.size(), out); });
}

/// Decode the first bytes of a word, and append opcode, size and operands.
bool Isa::Decoder::probe(uint64_t word, size_t given, Instructions &out) {
  std::array<uint8_t, sizeof(word)> bytes;
  support::endian::write64le(bytes.data(), word);
  if (!attempt(ArrayRef<uint8_t>(bytes).take_front(given), given) || !isa_.append(*inst_, out))
    return false;
  out.opcode.push_back(int32_t(inst_->getOpcode()));
  out.size.push_back(int32_t(size_));
  return true;
}

/// Decode `bytes`; return whether this processor has the instruction, in at most `most` bytes.
bool Isa::Decoder::attempt(ArrayRef<uint8_t> bytes, size_t most) {
  inst_->clear();
  if (disassembler_->getInstruction(*inst_, size_, bytes, address_ + offset_, nulls()) == MCDisassembler::Fail ||
      size_ == 0 || size_ > most)
    return false;
  isa_.complete(*inst_, bytes, size_);
  return isa_.problem(*inst_) == nullptr;
}

/// Decode a copy of the words in which unused fields have the values that LLVM wants there.
bool Isa::Decoder::attempt_cleared(const Words &original) {
  const std::vector<UnusedField> fields = unused_fields(original, isa_.wide());
  Words shown = original;
  for (const UnusedField &field : fields)
    field.set_in(shown);
  if (shown == original || !attempt(bytes_of(shown)))
    return false;
  const unsigned opcode = inst_->getOpcode();
  const Words cleared = shown;
  for (const UnusedField &field : fields)
    if (field.operand != UnusedField::kNoOperand && position(opcode, field.operand) >= 0)
      field.copy(original, shown); // this instruction uses it
  if (shown == cleared)
    return true;
  return shown != original && attempt(bytes_of(shown)) && inst_->getOpcode() == opcode;
}

/// Append the instruction as which the next bytes were decoded before; return false if that is not known.
bool Isa::Decoder::append_repeat() {
  const ArrayRef<uint8_t> bytes = some();
  const size_t size = is_short(bytes) ? repeats_->find(bytes, code_.size() - offset_, out_) : 0;
  if (size == 0)
    return false;
  out_.offset.push_back(int64_t(offset_));
  out_.target.push_back(kNoTarget);
  offset_ += size;
  return true;
}

/// Append an instruction without opcode and operands.
void Isa::Decoder::append_undecodable() {
  out_.operand_kind.resize(size_t(out_.operand_start.back()));
  out_.operand_value.resize(size_t(out_.operand_start.back()));
  const size_t length = isa_.wide() ? length_of_encoding(words_of(rest())) : 0, left = code_.size() - offset_;
  const bool is_known = length && length <= left;
  finish(is_known ? length : std::min<size_t>(4, left), -1, is_known ? kLengthFlag : 0, kNoTarget);
}

/// Append all columns except the operands, which are there already, and continue behind the instruction.
void Isa::Decoder::finish(size_t size, int32_t opcode, uint32_t flags, int64_t target) {
  out_.offset.push_back(int64_t(offset_));
  out_.size.push_back(int32_t(size));
  out_.opcode.push_back(opcode);
  out_.flags.push_back(flags);
  out_.target.push_back(target);
  out_.operand_start.push_back(int32_t(out_.operand_kind.size()));
  offset_ += size;
}

bool Isa::append(const MCInst &inst, Instructions &out) const {
  return llvm::all_of(inst, [&](const MCOperand &operand) { return append(operand, out); });
}

bool Isa::append(const MCOperand &operand, Instructions &out) const {
  if (operand.isReg()) {
    out.operand_kind.push_back(kKindRegister);
    out.operand_value.push_back(operand.getReg().id());
  } else if (operand.isImm()) {
    out.operand_kind.push_back(kKindImmediate);
    out.operand_value.push_back(operand.getImm());
  } else if (operand.isExpr() && AMDGPU::isLitExpr(operand.getExpr())) {
    out.operand_kind.push_back(literal_kind(*operand.getExpr()));
    out.operand_value.push_back(AMDGPU::getLitValue(operand.getExpr()));
  } else if (int64_t number; operand.isExpr() && operand.getExpr()->evaluateAsAbsolute(number)) {
    out.operand_kind.push_back(kKindImmediate); // the decoder gives s_version a symbol
    out.operand_value.push_back(number);
  } else {
    return false;
  }
  return true;
}

} // namespace luthier
