//===- WaveVariant.h - the module compiled for the other wave size --------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// GFX10 and later run waves of 32 or of 64 lanes, and code for one size is wrong for the other: the preprocessor,
// headers and the optimizer have already fixed `warpSize`, lane ids and ballots for one of them. So clang compiles the
// source again, with the arguments of this compilation except for the wave size, up to the optimizer.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_WAVEVARIANT_H
#define LUTHIER_WAVEVARIANT_H

#include <llvm/ADT/StringRef.h>
#include <llvm/IR/Module.h>

#include <optional>
#include <string>

namespace luthier {

/// Return the lanes a wave for which the module is compiled: 32 or 64.
unsigned wave_size(const llvm::Module &m);

/// The prepared bitcode for the other wave size. Neither member is set if the target has only one, or the author wants
/// one.
struct WaveVariant {
  std::string bitcode; ///< with a sealed manifest
  std::string problem; ///< why there is none
};

/// Compile the source of `m` for the other wave size. Only for a Luthier device module.
WaveVariant compile_wave_variant(const llvm::Module &m);

/// Return, in such a compilation, the file descriptor for its bitcode.
std::optional<int> wave_variant_output();

/// Write, in such a compilation, the bitcode. Return false if that fails.
bool write_wave_variant(int output, llvm::StringRef bitcode);

} // namespace luthier

#endif // LUTHIER_WAVEVARIANT_H
