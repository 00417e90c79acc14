//===- luthier/Intrinsic/Intrinsics.h - for tools of C++ Luthier -----------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// Intrinsics and names of registers as device code that was written for C++ Luthier spells them. `readReg`, `writeReg`,
// `sAtomicAdd` and the others are those of luthier/luthier.h; docs/porting.md lists differences in meaning.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_INTRINSIC_INTRINSICS_H
#define LUTHIER_INTRINSIC_INTRINSICS_H

#include <luthier/ToolCodeGen/FunctionAnnotations.h>

namespace llvm {

/// A register: one of those below.
typedef int MCRegister;

/// Registers by LLVM's names. A pair is named by its first register, as `readReg<uint64_t>` takes it.
namespace AMDGPU {

using namespace ::luthier; // VGPR0, SGPR0, AGPR0, VCC, EXEC, SCC, M0, MODE

#define LUTHIER_EVEN_PAIRS_OF_TEN(file, ten)                                                                           \
  file##ten##0_##file##ten##1 = file##ten##0, file##ten##2_##file##ten##3 = file##ten##2,                              \
  file##ten##4_##file##ten##5 = file##ten##4, file##ten##6_##file##ten##7 = file##ten##6,                              \
  file##ten##8_##file##ten##9 = file##ten##8,
#define LUTHIER_PAIRS_OF_TEN(file, ten, next)                                                                          \
  LUTHIER_EVEN_PAIRS_OF_TEN(file, ten)                                                                                 \
  file##ten##1_##file##ten##2 = file##ten##1, file##ten##3_##file##ten##4 = file##ten##3,                              \
  file##ten##5_##file##ten##6 = file##ten##5, file##ten##7_##file##ten##8 = file##ten##7,                              \
  file##ten##9_##file##next##0 = file##ten##9,

enum Pairs : int {
  LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, ) LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, 1) LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, 2)
      LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, 3) LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, 4) LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, 5)
          LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, 6) LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, 7) LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, 8)
              LUTHIER_EVEN_PAIRS_OF_TEN(SGPR, 9) SGPR100_SGPR101 = SGPR100,
  SGPR102_SGPR103 = SGPR102,
  SGPR104_SGPR105 = SGPR104,
  LUTHIER_PAIRS_OF_TEN(VGPR, , 1) LUTHIER_PAIRS_OF_TEN(VGPR, 1, 2) LUTHIER_PAIRS_OF_TEN(VGPR, 2, 3)
      LUTHIER_PAIRS_OF_TEN(VGPR, 3, 4) LUTHIER_PAIRS_OF_TEN(VGPR, 4, 5) LUTHIER_PAIRS_OF_TEN(VGPR, 5, 6)
          LUTHIER_PAIRS_OF_TEN(VGPR, 6, 7) LUTHIER_PAIRS_OF_TEN(VGPR, 7, 8) LUTHIER_PAIRS_OF_TEN(VGPR, 8, 9)
              LUTHIER_PAIRS_OF_TEN(VGPR, 9, 10) LUTHIER_PAIRS_OF_TEN(VGPR, 10, 11) LUTHIER_PAIRS_OF_TEN(VGPR, 11, 12)
                  LUTHIER_PAIRS_OF_TEN(VGPR, 12, 13) LUTHIER_PAIRS_OF_TEN(VGPR, 13, 14)
                      LUTHIER_PAIRS_OF_TEN(VGPR, 14, 15) LUTHIER_PAIRS_OF_TEN(VGPR, 15, 16)
                          LUTHIER_PAIRS_OF_TEN(VGPR, 16, 17) LUTHIER_PAIRS_OF_TEN(VGPR, 17, 18)
                              LUTHIER_PAIRS_OF_TEN(VGPR, 18, 19) LUTHIER_PAIRS_OF_TEN(VGPR, 19, 20)
                                  LUTHIER_PAIRS_OF_TEN(VGPR, 20, 21) LUTHIER_PAIRS_OF_TEN(VGPR, 21, 22)
                                      LUTHIER_PAIRS_OF_TEN(VGPR, 22, 23) LUTHIER_PAIRS_OF_TEN(VGPR, 23, 24)
                                          LUTHIER_PAIRS_OF_TEN(VGPR, 24, 25) VGPR250_VGPR251 = VGPR250,
  VGPR251_VGPR252,
  VGPR252_VGPR253,
  VGPR253_VGPR254,
  VGPR254_VGPR255,
};

#undef LUTHIER_PAIRS_OF_TEN
#undef LUTHIER_EVEN_PAIRS_OF_TEN

/// The length of a table with a row for each opcode: LLVM has fewer for AMD GPUs.
enum : int { INSTRUCTION_LIST_END = 65536 };

} // namespace AMDGPU

} // namespace llvm

/// Keeps the optimizer from removing the code around it.
#define LUTHIER_DONT_OPTIMIZE __asm__ __volatile__("" : : : "memory");

namespace luthier {

/// For the body of a tool's own intrinsic: keeps a parameter, or makes the result unknown to the optimizer.
template <typename T> __attribute__((device, always_inline)) inline void doNotOptimize(T const &value) {
  detail::use(value);
}

} // namespace luthier

// Functions across lanes that HIP has since release 6.
#if HIP_VERSION_MAJOR < 6
/// Returns the active lanes with the same 32-bit `value` as this lane.
template <typename T> __attribute__((device)) inline unsigned long long __match_any(T value) {
  static_assert(sizeof(T) == 4, "32 bits");
  for (;;) {
    const bool same = __builtin_amdgcn_readfirstlane(static_cast<int>(value)) == static_cast<int>(value);
    const unsigned long long lanes = __ballot(same);
    if (same)
      return lanes;
  }
}
/// Returns `value` of another lane.
template <typename T> __attribute__((device)) inline T __shfl_sync(unsigned long long, T value, int lane) {
  return __shfl(value, lane);
}
#endif

#endif // LUTHIER_INTRINSIC_INTRINSICS_H
