//===- luthier/registers.h - names of hardware registers for hooks --------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// One name per 32-bit register. The numbers are Luthier's own register units, the same on every target; they are
// neither hardware encodings nor LLVM's register numbers. A wider register is named by its first unit:
// readReg<uint64_t>(VCC), readReg<float4-sized type>(vgpr(8)).
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_REGISTERS_H
#define LUTHIER_REGISTERS_H

namespace luthier {

#define LUTHIER_TEN_REGISTERS(prefix, base, tens)                                                                      \
  prefix##tens##0 = (base) + 0, prefix##tens##1, prefix##tens##2, prefix##tens##3, prefix##tens##4, prefix##tens##5,   \
  prefix##tens##6, prefix##tens##7, prefix##tens##8, prefix##tens##9,
#define LUTHIER_HUNDRED_REGISTERS(prefix, base, hundreds)                                                              \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 10, hundreds##1)                                                              \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 20, hundreds##2)                                                              \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 30, hundreds##3)                                                              \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 40, hundreds##4)                                                              \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 50, hundreds##5)                                                              \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 60, hundreds##6)                                                              \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 70, hundreds##7)                                                              \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 80, hundreds##8)                                                              \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 90, hundreds##9)
#define LUTHIER_FILE_OF_256(prefix, base)                                                                              \
  LUTHIER_TEN_REGISTERS(prefix, base, )                                                                                \
  LUTHIER_HUNDRED_REGISTERS(prefix, base, )                                                                            \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 100, 10)                                                                      \
  LUTHIER_HUNDRED_REGISTERS(prefix, (base) + 100, 1)                                                                   \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 200, 20)                                                                      \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 210, 21)                                                                      \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 220, 22)                                                                      \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 230, 23)                                                                      \
  LUTHIER_TEN_REGISTERS(prefix, (base) + 240, 24)                                                                      \
  prefix##250 = (base) + 250, prefix##251, prefix##252, prefix##253, prefix##254, prefix##255,

/// Register units. `readReg` and `writeReg` take these, results of the functions below, or any constant expression with
/// such a value. Hooks can neither read nor write trap temporaries and FLAT_SCRATCH, and can only read MODE.
enum Register : int {
  // Scalar registers: unit 0 is s0. FLAT_SCRATCH and XNACK_MASK are s102 to s105 where the hardware puts them there.
  LUTHIER_TEN_REGISTERS(SGPR, 0, ) LUTHIER_HUNDRED_REGISTERS(SGPR, 0, ) SGPR100 = 100,
  SGPR101,
  SGPR102,
  SGPR103,
  SGPR104,
  SGPR105,

  VCC = 106, ///< 64 bits on wave64, 32 bits on wave32
  VCC_LO = 106,
  VCC_HI = 107,
  TTMP0 = 108, ///< first of 16 trap temporaries
  M0 = 124,    ///< on every target, wherever its encoding is
  EXEC = 126,  ///< 64 bits on wave64, 32 bits on wave32
  EXEC_LO = 126,
  EXEC_HI = 127,
  SCC = 128, ///< one bit, read as 0 or 1
  MODE = 129,
  FLAT_SCRATCH = 130, ///< where it is not a pair of SGPRs
  FLAT_SCRATCH_LO = 130,
  FLAT_SCRATCH_HI = 131,

  // Vector registers: unit 256 is v0. Of targets with more than 256, `vgpr` names the others.
  LUTHIER_FILE_OF_256(VGPR, 256)
  // Accumulation registers: unit 1280 is a0.
  LUTHIER_FILE_OF_256(AGPR, 1280)
};

#undef LUTHIER_FILE_OF_256
#undef LUTHIER_HUNDRED_REGISTERS
#undef LUTHIER_TEN_REGISTERS

/// The register unit of SGPR `index` (0 to 105).
__attribute__((device, host)) constexpr Register sgpr(int index) { return static_cast<Register>(index); }
/// The register unit of VGPR `index` (0 to 255; on targets with 1,024 VGPRs, to 1023).
__attribute__((device, host)) constexpr Register vgpr(int index) { return static_cast<Register>(256 + index); }
/// The register unit of AGPR `index` (0 to 255).
__attribute__((device, host)) constexpr Register agpr(int index) { return static_cast<Register>(1280 + index); }

} // namespace luthier

#endif // LUTHIER_REGISTERS_H
