#include "unused_fields.h"

namespace luthier {
namespace {

// Upper six bits of the first word (RDNA4 ISA, "Microcode formats"); DS has had its since GFX8.
enum Encoding : uint32_t {
  kVBuffer = 0x31,
  kVopd = 0x32,
  kVop3pAndMore = 0x33,
  kVImage = 0x34,
  kVop3 = 0x35,
  kDs = 0x36,
  kVSample = 0x39,
  kVFlat = 0x3b,
  kSmem = 0x3d,
  kExport = 0x3e,
};

constexpr uint32_t kVopd3 = 0xcf; // upper eight bits
constexpr uint32_t kDpp16 = 0xfa; // as the first source of VOP1, VOP2 and VOPC
constexpr uint32_t kLdScalePaired = 0xcc35, kLdScale16Paired = 0xcc3a, kWmmaF4 = 0xcc88; // upper half of the first word
constexpr uint32_t kLegacyTensor = 0xd0310000, kTensorStore = 0x4000;
constexpr uint32_t kNullRegister = 0x7c;

bool one_of(uint32_t value, uint32_t first, uint32_t last) { return value >= first && value <= last; }

/// v_wmma_f32_32x16x128_f4 has no op_sel_hi; LLVM's encoder sets the bits where they are unused (D97689,
/// getImplicitOpSelHiEncoding: "Set unused op_sel_hi bits to 1"), and its decoder insists on it here.
void add_op_sel_hi(unsigned base, std::vector<UnusedField> &fields) {
  fields.push_back({base + 14, 1, 1, UnusedField::kNoOperand});
  fields.push_back({base + 59, 2, 3, UnusedField::kNoOperand});
}

std::vector<UnusedField> unused_of_wide(const Words &words) {
  std::vector<UnusedField> fields;
  const uint32_t upper = words[0] >> 16;
  if (upper == kWmmaF4) {
    add_op_sel_hi(0, fields);
  } else if (upper == kLdScalePaired || upper == kLdScale16Paired) {
    // "The unused field src2 is now encoded to vgpr0" (LLVM pull request 167777); older code has 0 there.
    if ((words[1] >> 18 & 0x1ff) == 0)
      fields.push_back({50, 9, 0x100, UnusedField::kNoOperand});
    if (words[2] >> 16 == kWmmaF4)
      add_op_sel_hi(64, fields);
  } else if ((words[0] & ~kTensorStore) == kLegacyTensor && words[1] >> 24 == 0) {
    // tensor_load_to_lds and tensor_store_from_lds of early assemblers, which had 0 in dim, dmask and vaddr4. AMD's
    // LLVM reads them as today's, and tests it (tensor_load_to_lds_gfx1250_legacy).
    fields.push_back({0, 3, 1, UnusedField::kNoOperand});
    fields.push_back({22, 1, 1, UnusedField::kNoOperand});
    fields.push_back({56, 8, kNullRegister, UnusedField::kNoOperand});
  }
  return fields;
}

/// VOP1, VOP2 and VOPC.
unsigned length_of_vop(uint32_t word) {
  const uint32_t operation = word >> 25, source = word & 0x1ff;
  if (one_of(operation, 0x23, 0x24)) // v_fmamk_f64, v_fmaak_f64
    return 12;
  if (one_of(operation, 0x2c, 0x2d) || one_of(operation, 0x37, 0x38)) // of 32 and 16 bits
    return 8;
  if (source == 0xfe) // a literal of 64 bits
    return 12;
  return source == 0xff || source == kDpp16 || one_of(source, 0xe9, 0xea) ? 8 : 4;
}

/// VOP3, VOP3SD and VOP3P.
unsigned length_of_vop3(uint32_t word) {
  const uint32_t source = word & 0x1ff;
  const bool more = source == 0xff || source == kDpp16 || one_of(source, 0xe9, 0xea) || (word >> 9 & 0x1ff) == 0xff ||
                    (word >> 18 & 0x1ff) == 0xff;
  return more ? 12 : 8;
}

unsigned length_of_vopd(const Words &words) {
  const bool literal = one_of(words[0] >> 22 & 15, 1, 2) || one_of(words[0] >> 17 & 31, 1, 2) || // fmaak, fmamk
                       (words[0] & 0x1ff) == 0xff || (words[1] & 0x1ff) == 0xff;
  return literal ? 12 : 8;
}

} // namespace

std::vector<UnusedField> unused_fields(const Words &words, bool wide) {
  const OperandNames &names = operand_names();
  // Measured on hardware: DS instructions that return nothing may have a vdst.
  if (words[0] >> 26 == kDs)
    return {{56, 8, 0, names.vdst}};
  // "Permit unneeded VOPD mov operands to be non-zero" (LLVM pull request 194060); measured on hardware, too.
  if (words[0] >> 26 == kVopd)
    return {{9, 8, 0, names.vsrc1_x}, {41, 8, 0, names.vsrc1_y}};
  // "Permit unneeded VOPD3 operands to be non-zero" (LLVM pull request 193974). A truth table is where the last source
  // is.
  if (wide && words[0] >> 24 == kVopd3)
    return {{48, 8, 0, names.vsrc1_x},
            {56, 8, 0, names.vsrc2_x},
            {72, 8, 0, names.vsrc1_y},
            {80, 8, 0, names.vsrc2_y},
            {80, 8, 0, names.bitop3}};
  // Negation and absolute value of a second source that VOP1 does not have (ISA documents, "DPP"); measured.
  if (words[0] >> 31 == 0 && (words[0] & 0x1ff) == kDpp16)
    return {{54, 2, 0, names.src1}};
  return wide ? unused_of_wide(words) : std::vector<UnusedField>();
}

bool is_scale_half(const Words &words, bool wide) {
  return wide && (words[0] >> 16 == kLdScalePaired || words[0] >> 16 == kLdScale16Paired);
}

// The lengths of encodings with vector instructions, VOPD3 and VOP3PX2 are those that AMD's trap handler skips by
// (Linux, cwsr_trap_handler_gfx12.asm, fixup_instruction); the others are of the RDNA4 ISA, "Microcode formats". Scalar
// ALU instructions are not among them: an unknown one may be a branch.
unsigned length_of_encoding(const Words &words) {
  if (words[0] >> 31 == 0)
    return length_of_vop(words[0]);
  switch (words[0] >> 26) {
  case kVopd:
    return length_of_vopd(words);
  case kVop3:
    return length_of_vop3(words[1]);
  case kVop3pAndMore:
    if (words[0] >> 24 == kVopd3)
      return 12;
    if (words[0] >> 24 != 0xcc)
      return 0;
    if (is_scale_half(words, true))
      return words[2] >> 16 == 0xcc33 || words[2] >> 16 == kWmmaF4 ? 16 : 8;
    return length_of_vop3(words[1]);
  case kDs:
  case kSmem:
  case kExport:
    return 8;
  case kVBuffer:
  case kVImage:
  case kVSample:
  case kVFlat:
    return 12;
  default:
    return 0;
  }
}

} // namespace luthier
