// Instruction flags: LLVM's generic descriptor bits and, from TSFlags, the class of an instruction.
#include "isa.h"

#include "llvm/ADT/StringSwitch.h"

using namespace llvm;

namespace luthier {
namespace {

// Public flags; keep in step with luthier.isa.InstructionFlag (a test compares them through module constants).
enum Flag : uint32_t {
  kBranch = 1u << 0,
  kConditional = 1u << 1,
  kIndirect = 1u << 2,
  kCall = 1u << 3,
  kReturn = 1u << 4,
  kTerminator = 1u << 5,
  kBarrier = 1u << 6,
  kLoad = 1u << 7,
  kStore = 1u << 8,
  kSideEffects = 1u << 9,
  kCompare = 1u << 10,
  kSalu = 1u << 11,
  kValu = 1u << 12,
  kSmem = 1u << 13,
  kVmem = 1u << 14,
  kFlat = 1u << 15,
  kDs = 1u << 16,
  kExport = 1u << 17,
  kMatrix = 1u << 18,
  kTrans = 1u << 19,
  kFlatGlobal = 1u << 20,
  kFlatScratch = 1u << 21,
  kAtomic = 1u << 22,
  kImage = 1u << 23,
  kSdwa = 1u << 24,
  kDpp = 1u << 25,
  kPacked = 1u << 26,
  kDot = 1u << 27,
  kGws = 1u << 28,
  kInterpolation = 1u << 29,
};

// Bits of MCInstrDesc::TSFlags in LLVM 22 (SIInstrFlags in the private SIDefines.h); tests/isa/test_opcodes.py proves
// each against opcodes whose class is known from their name.
namespace ts {
constexpr uint64_t bit(int n) { return uint64_t(1) << n; }
constexpr uint64_t kSalu = bit(0), kValu = bit(1), kVintrp = bit(13), kSdwa = bit(14), kDpp = bit(15), kTrans = bit(16);
constexpr uint64_t kMubuf = bit(17), kMtbuf = bit(18), kSmrd = bit(19), kMimg = bit(20), kVimage = bit(21),
                   kVsample = bit(22);
constexpr uint64_t kExp = bit(23), kFlat = bit(24), kDs = bit(25), kLdsdir = bit(28), kVinterp = bit(29);
constexpr uint64_t kIsPacked = bit(49), kFlatGlobal = bit(51), kIsMai = bit(54), kIsDot = bit(55),
                   kFlatScratch = bit(56);
constexpr uint64_t kIsAtomicNoRet = bit(57), kIsAtomicRet = bit(58), kIsWmma = bit(59), kGws = bit(62),
                   kIsSwmmac = bit(63);
} // namespace ts

} // namespace

uint32_t instruction_flags(const MCInstrDesc &real, const MCInstrDesc &generic, StringRef name) {
  uint32_t flags = 0;
  auto set = [&flags](bool condition, uint32_t bits) {
    if (condition)
      flags |= bits;
  };
  // LLVM copies most, not all, properties of a generic opcode to the real ones that are decoded.
  for (const MCInstrDesc *desc : {&real, &generic}) {
    set(desc->isBranch(), kBranch);
    set(desc->isConditionalBranch(), kConditional);
    set(desc->isIndirectBranch(), kIndirect);
    set(desc->isCall(), kCall);
    set(desc->isReturn(), kReturn);
    set(desc->isTerminator(), kTerminator);
    set(desc->isBarrier(), kBarrier);
    set(desc->mayLoad(), kLoad);
    set(desc->mayStore(), kStore);
    set(desc->isCompare(), kCompare);
  }
  // A real opcode has no pattern from which to infer this, so only the flag of the generic one counts.
  set(generic.hasUnmodeledSideEffects(), kSideEffects);

  const uint64_t bits = real.TSFlags | generic.TSFlags;
  set(bits & ts::kSalu, kSalu);
  // Loads into LDS carry the VALU bit too; they are memory instructions.
  set(bits & ts::kValu && !(bits & (ts::kMubuf | ts::kMtbuf | ts::kFlat | ts::kDs)), kValu);
  set(bits & ts::kSmrd, kSmem);
  set(bits & (ts::kMubuf | ts::kMtbuf | ts::kMimg | ts::kVimage | ts::kVsample), kVmem);
  set(bits & (ts::kMimg | ts::kVimage | ts::kVsample), kImage);
  set(bits & ts::kFlat, kFlat);
  set(bits & ts::kFlatGlobal, kFlatGlobal);
  set(bits & ts::kFlatScratch, kFlatScratch);
  set(bits & ts::kDs, kDs);
  set(bits & ts::kExp, kExport);
  set(bits & (ts::kIsMai | ts::kIsWmma | ts::kIsSwmmac), kMatrix);
  set(bits & ts::kTrans, kTrans);
  // In LLVM's tables, plain LDS writes also read, and some are atomics; real LDS atomics read and write.
  if (name.starts_with("DS_WRITE_B") || name.starts_with("DS_STORE_B"))
    flags &= ~uint32_t(kLoad);
  if (bits & ts::kDs)
    set((flags & kLoad) && (flags & kStore) && !(bits & ts::kGws) && !name.contains("BVH_STACK"), kAtomic);
  else
    set(bits & (ts::kIsAtomicNoRet | ts::kIsAtomicRet), kAtomic);
  set(bits & ts::kSdwa, kSdwa);
  set(bits & ts::kDpp, kDpp);
  set(bits & ts::kIsPacked, kPacked);
  set(bits & ts::kIsDot, kDot);
  set(bits & ts::kGws, kGws);
  set(bits & (ts::kVintrp | ts::kVinterp | ts::kLdsdir) || name.starts_with("V_INTERP_"), kInterpolation);

  // Control flow that LLVM, which never generates it, does not describe.
  set(name.starts_with("S_SWAPPC_B64"), kIndirect);
  set(name.starts_with("S_CBRANCH_I_FORK"), kBranch | kConditional | kTerminator);
  set(name.starts_with("S_CBRANCH_G_FORK") || name.starts_with("S_CBRANCH_JOIN"),
      kBranch | kConditional | kIndirect | kTerminator);
  set(name.starts_with("S_RFE_"), kBranch | kIndirect | kTerminator | kBarrier);
  return flags;
}

} // namespace luthier
