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

/// Stands in the manifest where the digest of the bitcode goes, which is known only once the bitcode is written.
constexpr llvm::StringLiteral DigestPlaceholder("0000000000000000000000000000000000000000000000000000000000000000");

/// Puts the SHA-256 of `Bitcode`, taken with the placeholder in place, where the placeholder is.
void sealManifest(std::string &Bitcode);

class Manifest {
public:
  explicit Manifest(llvm::Module &M);

  void addHook(const AnnotatedFunction &Hook);
  /// `Name` is the IR name of the intrinsic, `Source` how the source names it. Several functions may share a name.
  void addIntrinsic(llvm::StringRef Name, llvm::StringRef Source);
  /// `Storage` holds the contents and the alignment: the variable itself, or NAME.managed of a managed one.
  void addVariable(const llvm::GlobalVariable &Variable, const llvm::GlobalVariable &Storage);
  void addAlias(llvm::StringRef Name, llvm::StringRef Aliasee, int64_t Offset);
  /// Writes everything into the module's metadata, with what is known of the other wave size.
  void write(const WaveVariant &Variant);

private:
  llvm::Module &M;
  std::string Target;
  unsigned WaveSize;
  llvm::json::Array Hooks, Variables, Aliases;
  std::map<std::string, llvm::json::Array> Intrinsics; // by name
};

} // namespace luthier

#endif // LUTHIER_MANIFEST_H
