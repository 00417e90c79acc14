//===- luthier/support/hip5_with_clang22.h - HIP before 7 with clang 22 ----===//
//
// Part of Luthier, under the Apache License v2.0.
//
// hip_fp16.h of older HIP releases takes two functions from clang's own headers, which dropped them in clang 22.
// Luthier's toolchain discovery includes this file first when it finds that pair; sources need not include it.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_SUPPORT_HIP5_WITH_CLANG22_H
#define LUTHIER_SUPPORT_HIP5_WITH_CLANG22_H

#if defined(__HIP__) && defined(__cplusplus)

static inline __attribute__((device, always_inline, unused)) _Float16 __llvm_amdgcn_rcp_f16(_Float16 value) {
  return static_cast<_Float16>(__builtin_amdgcn_rcph(value));
}

typedef _Float16 __luthier_half_pair __attribute__((ext_vector_type(2)));

static inline __attribute__((device, always_inline, unused)) __luthier_half_pair
__llvm_amdgcn_rcp_2f16(__luthier_half_pair value) {
  return __luthier_half_pair{__llvm_amdgcn_rcp_f16(value.x), __llvm_amdgcn_rcp_f16(value.y)};
}

#endif

#endif // LUTHIER_SUPPORT_HIP5_WITH_CLANG22_H
