//===- Manifest.h - what the clone would otherwise lose -------------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// The clone has no initialisers, no managed storage and no debug info. What the runtime needs of them is written as one
// JSON text into the named metadata `luthier.manifest`; compiler_plugin/README.md describes it.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_MANIFEST_H
#define LUTHIER_MANIFEST_H

#include "DeviceModule.h"

#include <llvm/Support/JSON.h>

#include <map>
#include <string>

namespace luthier {

/// Placeholder in the manifest for the digest of the bitcode, which is known only after the bitcode is written.
constexpr llvm::StringLiteral kDigestPlaceholder("0000000000000000000000000000000000000000000000000000000000000000");

/// Replace the placeholder with the SHA-256 of `bitcode`, which is computed with the placeholder in place.
void seal_manifest(std::string &bitcode);

class Manifest {
public:
  explicit Manifest(llvm::Module &m);

  void add_hook(const AnnotatedFunction &hook);
  /// `name` is the IR name of the intrinsic, `source` its name in the source. Several functions may share a name.
  void add_intrinsic(llvm::StringRef name, llvm::StringRef source);
  /// `storage` has the contents and the alignment: the variable itself, or NAME.managed of a managed one.
  void add_variable(const llvm::GlobalVariable &variable, const llvm::GlobalVariable &storage);
  void add_alias(llvm::StringRef name, llvm::StringRef aliasee, int64_t offset);
  /// Writes everything into the module's metadata, with what is known of the other wave size.
  void write(const WaveVariant &variant);

private:
  llvm::Module &m_;
  std::string target_;
  unsigned wave_size_;
  llvm::json::Array hooks_, variables_, aliases_;
  std::map<std::string, llvm::json::Array> intrinsics_; // by name
};

} // namespace luthier

#endif // LUTHIER_MANIFEST_H
