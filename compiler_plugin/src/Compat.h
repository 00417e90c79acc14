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

/// Add `pass` at the end of the optimizer's pipeline, at every optimization level. LLVM 20 added a parameter to the
/// callback, and ROCm's releases are cut from in between, so it takes any.
template <typename PassT> void add_optimizer_last_pass(llvm::PassBuilder &builder, PassT pass) {
  builder.registerOptimizerLastEPCallback(
      [pass](llvm::ModulePassManager &passes, auto &&...) { passes.addPass(PassT(pass)); });
}

inline llvm::Triple target_triple(const llvm::Module &m) { return llvm::Triple(m.getTargetTriple()); }

/// Return the attributes of these names that this release has.
inline llvm::AttributeMask attributes_named(std::initializer_list<llvm::StringRef> names) {
  llvm::AttributeMask mask;
  for (llvm::StringRef name : names)
    if (auto kind = llvm::Attribute::getAttrKindFromName(name); kind != llvm::Attribute::None)
      mask.addAttribute(kind);
  return mask;
}

/// Return the function attributes that the optimizer infers from the bodies of intrinsics, which are removed. `memory`
/// replaced those after it in LLVM 16.
inline llvm::AttributeMask inferred_function_attributes() {
  return attributes_named({"nofree", "nosync", "norecurse", "willreturn", "speculatable", "nocallback", "memory",
                           "argmemonly", "inaccessiblememonly", "inaccessiblemem_or_argmemonly", "readnone", "readonly",
                           "writeonly"});
}

/// Return the inferred attributes of parameters. `captures` took the place of `nocapture` in LLVM 21.
inline llvm::AttributeMask inferred_parameter_attributes() {
  return attributes_named({"nofree", "readnone", "readonly", "writeonly", "returned", "captures", "nocapture"});
}

} // namespace luthier::compat

#endif // LUTHIER_COMPAT_H
