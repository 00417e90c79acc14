//===- Compat.h - what differs between LLVM releases ----------------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// One source serves LLVM 15 to 22 and later, upstream's and ROCm's. Every difference between them is here.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_COMPAT_H
#define LUTHIER_COMPAT_H

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Attributes.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>

#if LLVM_VERSION_MAJOR < 15
#error "Luthier's compiler plugin needs LLVM 15 or later"
#endif

#if __has_include(<llvm/IR/AttributeMask.h>)
#include <llvm/IR/AttributeMask.h> // LLVM 17 made it a file of its own
#endif
#if __has_include(<llvm/Plugins/PassPlugin.h>)
#include <llvm/Plugins/PassPlugin.h> // LLVM 22 moved it
#else
#include <llvm/Passes/PassPlugin.h>
#endif
#if __has_include(<llvm/TargetParser/Triple.h>)
#include <llvm/TargetParser/Triple.h> // LLVM 17 moved it
#else
#include <llvm/ADT/Triple.h>
#endif

#include <initializer_list>

namespace luthier::compat {

/// Adds `Pass` at the end of the optimizer's pipeline, at every optimization level. LLVM 20 gave the callback a
/// parameter more, and ROCm's releases are cut from in between; so it takes any.
template <typename PassT> void addOptimizerLastPass(llvm::PassBuilder &Builder, PassT Pass) {
  Builder.registerOptimizerLastEPCallback(
      [Pass](llvm::ModulePassManager &Passes, auto &&...) { Passes.addPass(PassT(Pass)); });
}

inline llvm::Triple targetTriple(const llvm::Module &M) { return llvm::Triple(M.getTargetTriple()); }

/// The attributes of these names, those left out that this release does not have.
inline llvm::AttributeMask attributesNamed(std::initializer_list<llvm::StringRef> Names) {
  llvm::AttributeMask Mask;
  for (llvm::StringRef Name : Names)
    if (auto Kind = llvm::Attribute::getAttrKindFromName(Name); Kind != llvm::Attribute::None)
      Mask.addAttribute(Kind);
  return Mask;
}

/// Function attributes that the optimizer concluded from the bodies of intrinsics, which do not stay. `memory` took the
/// place of those after it in LLVM 16.
inline llvm::AttributeMask inferredFunctionAttributes() {
  return attributesNamed({"nofree", "nosync", "norecurse", "willreturn", "speculatable", "nocallback", "memory",
                          "argmemonly", "inaccessiblememonly", "inaccessiblemem_or_argmemonly", "readnone", "readonly",
                          "writeonly"});
}

/// Return the inferred attributes of parameters. `captures` took the place of `nocapture` in LLVM 21.
inline llvm::AttributeMask inferredParameterAttributes() {
  return attributesNamed({"nofree", "readnone", "readonly", "writeonly", "returned", "captures", "nocapture"});
}

} // namespace luthier::compat

#endif // LUTHIER_COMPAT_H
