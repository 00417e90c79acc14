// Instruction flags: LLVM's generic descriptor bits and, from TSFlags, the class of an instruction.
#include "isa.h"

#include "llvm/ADT/StringSwitch.h"

using namespace llvm;

namespace luthier {
namespace {

// Public flags; keep in step with luthier.isa.InstructionFlag (a test compares them through module constants).
enum Flag : uint32_t {
  Branch = 1u << 0,
  Conditional = 1u << 1,
  Indirect = 1u << 2,
  Call = 1u << 3,
  Return = 1u << 4,
  Terminator = 1u << 5,
  Barrier = 1u << 6,
  Load = 1u << 7,
  Store = 1u << 8,
  SideEffects = 1u << 9,
  Compare = 1u << 10,
  Salu = 1u << 11,
  Valu = 1u << 12,
  Smem = 1u << 13,
  Vmem = 1u << 14,
  Flat = 1u << 15,
  Ds = 1u << 16,
  Export = 1u << 17,
  Matrix = 1u << 18,
  Trans = 1u << 19,
  FlatGlobal = 1u << 20,
  FlatScratch = 1u << 21,
  Atomic = 1u << 22,
  Image = 1u << 23,
  Sdwa = 1u << 24,
  Dpp = 1u << 25,
  Packed = 1u << 26,
  Dot = 1u << 27,
  Gws = 1u << 28,
  Interpolation = 1u << 29,
};

// Bits of MCInstrDesc::TSFlags in LLVM 22 (SIInstrFlags in the private SIDefines.h); tests/isa/test_opcodes.py proves
// each against opcodes whose class is known from their name.
namespace ts {
constexpr uint64_t bit(int n) { return uint64_t(1) << n; }
constexpr uint64_t SALU = bit(0), VALU = bit(1), VINTRP = bit(13), SDWA = bit(14), DPP = bit(15), TRANS = bit(16);
constexpr uint64_t MUBUF = bit(17), MTBUF = bit(18), SMRD = bit(19), MIMG = bit(20), VIMAGE = bit(21),
                   VSAMPLE = bit(22);
constexpr uint64_t EXP = bit(23), FLAT = bit(24), DS = bit(25), LDSDIR = bit(28), VINTERP = bit(29);
constexpr uint64_t IsPacked = bit(49), FlatGlobal = bit(51), IsMAI = bit(54), IsDOT = bit(55), FlatScratch = bit(56);
constexpr uint64_t IsAtomicNoRet = bit(57), IsAtomicRet = bit(58), IsWMMA = bit(59), GWS = bit(62), IsSWMMAC = bit(63);
} // namespace ts

} // namespace

uint32_t instructionFlags(const MCInstrDesc &real, const MCInstrDesc &generic, StringRef name) {
  uint32_t flags = 0;
  auto set = [&flags](bool condition, uint32_t bits) {
    if (condition)
      flags |= bits;
  };
  // LLVM copies most, not all, properties of a generic opcode to the real ones that are decoded.
  for (const MCInstrDesc *desc : {&real, &generic}) {
    set(desc->isBranch(), Branch);
    set(desc->isConditionalBranch(), Conditional);
    set(desc->isIndirectBranch(), Indirect);
    set(desc->isCall(), Call);
    set(desc->isReturn(), Return);
    set(desc->isTerminator(), Terminator);
    set(desc->isBarrier(), Barrier);
    set(desc->mayLoad(), Load);
    set(desc->mayStore(), Store);
    set(desc->isCompare(), Compare);
  }
  // A real opcode has no pattern to infer this from, so only the generic one's is meant.
  set(generic.hasUnmodeledSideEffects(), SideEffects);

  const uint64_t bits = real.TSFlags | generic.TSFlags;
  set(bits & ts::SALU, Salu);
  // Loads into LDS carry the VALU bit too; they are memory instructions.
  set(bits & ts::VALU && !(bits & (ts::MUBUF | ts::MTBUF | ts::FLAT | ts::DS)), Valu);
  set(bits & ts::SMRD, Smem);
  set(bits & (ts::MUBUF | ts::MTBUF | ts::MIMG | ts::VIMAGE | ts::VSAMPLE), Vmem);
  set(bits & (ts::MIMG | ts::VIMAGE | ts::VSAMPLE), Image);
  set(bits & ts::FLAT, Flat);
  set(bits & ts::FlatGlobal, FlatGlobal);
  set(bits & ts::FlatScratch, FlatScratch);
  set(bits & ts::DS, Ds);
  set(bits & ts::EXP, Export);
  set(bits & (ts::IsMAI | ts::IsWMMA | ts::IsSWMMAC), Matrix);
  set(bits & ts::TRANS, Trans);
  // LLVM believes that plain LDS writes read, and calls some of them atomics; real LDS atomics read and write.
  if (name.starts_with("DS_WRITE_B") || name.starts_with("DS_STORE_B"))
    flags &= ~uint32_t(Load);
  if (bits & ts::DS)
    set((flags & Load) && (flags & Store) && !(bits & ts::GWS) && !name.contains("BVH_STACK"), Atomic);
  else
    set(bits & (ts::IsAtomicNoRet | ts::IsAtomicRet), Atomic);
  set(bits & ts::SDWA, Sdwa);
  set(bits & ts::DPP, Dpp);
  set(bits & ts::IsPacked, Packed);
  set(bits & ts::IsDOT, Dot);
  set(bits & ts::GWS, Gws);
  set(bits & (ts::VINTRP | ts::VINTERP | ts::LDSDIR) || name.starts_with("V_INTERP_"), Interpolation);

  // Control flow that LLVM, which never generates it, does not describe.
  set(name.starts_with("S_SWAPPC_B64"), Indirect);
  set(name.starts_with("S_CBRANCH_I_FORK"), Branch | Conditional | Terminator);
  set(name.starts_with("S_CBRANCH_G_FORK") || name.starts_with("S_CBRANCH_JOIN"),
      Branch | Conditional | Indirect | Terminator);
  set(name.starts_with("S_RFE_"), Branch | Indirect | Terminator | Barrier);
  return flags;
}

} // namespace luthier
