//===- WaveVariant.h - the module compiled for the other wave size --------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// GFX10 and later run waves of 32 or of 64 lanes, and code for one size means something else in the other: the
// preprocessor, headers and the optimizer have long made `warpSize`, lane ids and ballots what they are in one of them.
// So the source is compiled once more, by clang itself with the arguments of this very compilation but for the wave
// size, and no further than the optimizer.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_WAVEVARIANT_H
#define LUTHIER_WAVEVARIANT_H

#include <llvm/ADT/StringRef.h>
#include <llvm/IR/Module.h>

#include <optional>
#include <string>

namespace luthier {

/// Lanes a wave that the module's code is for: 32 or 64.
unsigned waveSize(const llvm::Module &M);

/// The prepared bitcode for the other wave size. Neither is set where the target has but one, or the author wants one.
struct WaveVariant {
  std::string Bitcode; ///< with a sealed manifest
  std::string Problem; ///< why there is none
};

/// Compiles the source of `M` for the other wave size. Only for a Luthier device module.
WaveVariant compileWaveVariant(const llvm::Module &M);

/// In such a compilation: where its bitcode goes.
std::optional<int> waveVariantOutput();

/// In such a compilation: hands the bitcode over. Returns false where that fails.
bool writeWaveVariant(int Output, llvm::StringRef Bitcode);

} // namespace luthier

#endif // LUTHIER_WAVEVARIANT_H
