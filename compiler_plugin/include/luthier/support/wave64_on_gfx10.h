//===- luthier/support/wave64_on_gfx10.h - HIP's headers for wave64 --------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// Headers of HIP before release 6 reject GFX10 code with waves of 64 lanes, because HIP's runtime does not launch it.
// Kernels from other compilers and from assembly may have such waves, and hooks. Luthier's compiler plugin includes
// this file first when it compiles hooks for them; sources need not include it.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_SUPPORT_WAVE64_ON_GFX10_H
#define LUTHIER_SUPPORT_WAVE64_ON_GFX10_H

#pragma push_macro("__gfx1010__")
#pragma push_macro("__gfx1011__")
#pragma push_macro("__gfx1012__")
#pragma push_macro("__gfx1030__")
#pragma push_macro("__gfx1031__")
#undef __gfx1010__
#undef __gfx1011__
#undef __gfx1012__
#undef __gfx1030__
#undef __gfx1031__
#include <hip/hip_runtime.h>
#pragma pop_macro("__gfx1031__")
#pragma pop_macro("__gfx1030__")
#pragma pop_macro("__gfx1012__")
#pragma pop_macro("__gfx1011__")
#pragma pop_macro("__gfx1010__")

// Wave size that these releases' cooperative groups assume to be 32 on GFX10.
#ifndef WAVEFRONT_SIZE
#define WAVEFRONT_SIZE 64
#endif

#endif // LUTHIER_SUPPORT_WAVE64_ON_GFX10_H
