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

#if LLVM_VERSION_MAJOR >= 17
#include <llvm/IR/AttributeMask.h>
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

namespace luthier::compat {

/// Adds `Pass` at the end of the optimizer's pipeline, at every optimization level.
template <typename PassT> void addOptimizerLastPass(llvm::PassBuilder &Builder, PassT Pass) {
#if LLVM_VERSION_MAJOR >= 20
  Builder.registerOptimizerLastEPCallback(
      [Pass](llvm::ModulePassManager &Passes, llvm::OptimizationLevel, llvm::ThinOrFullLTOPhase) {
        Passes.addPass(PassT(Pass));
      });
#else
  Builder.registerOptimizerLastEPCallback(
      [Pass](llvm::ModulePassManager &Passes, llvm::OptimizationLevel) { Passes.addPass(PassT(Pass)); });
#endif
}

inline llvm::Triple targetTriple(const llvm::Module &M) { return llvm::Triple(M.getTargetTriple()); }

/// Function attributes that the optimizer concluded from the bodies of intrinsics, which do not stay.
inline llvm::AttributeMask inferredFunctionAttributes() {
  using llvm::Attribute;
  llvm::AttributeMask Mask;
  for (Attribute::AttrKind Kind : {Attribute::NoFree, Attribute::NoSync, Attribute::NoRecurse, Attribute::WillReturn,
                                   Attribute::Speculatable, Attribute::NoCallback})
    Mask.addAttribute(Kind);
#if LLVM_VERSION_MAJOR >= 16
  Mask.addAttribute(Attribute::Memory);
#else
  for (Attribute::AttrKind Kind :
       {Attribute::ArgMemOnly, Attribute::InaccessibleMemOnly, Attribute::InaccessibleMemOrArgMemOnly,
        Attribute::ReadNone, Attribute::ReadOnly, Attribute::WriteOnly})
    Mask.addAttribute(Kind);
#endif
  return Mask;
}

/// The same of parameters.
inline llvm::AttributeMask inferredParameterAttributes() {
  using llvm::Attribute;
  llvm::AttributeMask Mask;
  for (Attribute::AttrKind Kind : {Attribute::NoFree, Attribute::ReadNone, Attribute::ReadOnly, Attribute::WriteOnly,
                                   Attribute::Returned})
    Mask.addAttribute(Kind);
#if LLVM_VERSION_MAJOR >= 21
  Mask.addAttribute(Attribute::Captures);
#else
  Mask.addAttribute(Attribute::NoCapture);
#endif
  return Mask;
}

} // namespace luthier::compat

#endif // LUTHIER_COMPAT_H
