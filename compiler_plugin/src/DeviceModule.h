//===- DeviceModule.h - a tool's device module, made ready ----------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_DEVICEMODULE_H
#define LUTHIER_DEVICEMODULE_H

#include "WaveVariant.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/Twine.h>
#include <llvm/IR/Module.h>

#include <string>

namespace luthier {

/// The variable that MARK_LUTHIER_DEVICE_MODULE defines.
constexpr char ReservedVariable[] = "__luthier_reserved";
/// Managed variable NAME is a pointer NAME and its initial contents NAME.managed.
constexpr char ManagedSuffix[] = ".managed";
/// Prefix of the symbol that identifies one source across targets; followed by its hash.
constexpr char CuidPrefix[] = "__hip_cuid_";
/// Function attributes, and the annotations they come from.
constexpr char HookAttribute[] = "luthier_hook";
constexpr char IntrinsicAttribute[] = "luthier_intrinsic";
/// Annotation of instances of a function template for the class whose static members are hooks where they are `used`.
constexpr char MembersAnnotation[] = "luthier_members";
/// In place of `noinline` on functions that hooks call.
constexpr char NoInlineWish[] = "luthier_noinline";

/// A function with the source place of its annotation.
struct AnnotatedFunction {
  llvm::Function *Function;
  std::string File; ///< empty where nothing was annotated
  unsigned Line;
};

/// Contents of `llvm.global.annotations`, without duplicates, in module order; then the hooks among members of classes.
struct Annotations {
  llvm::SmallVector<AnnotatedFunction, 8> Hooks;
  llvm::SmallVector<AnnotatedFunction, 8> Intrinsics;
};

/// Return whether `M` is device code of a Luthier tool, not host code nor device code of another program.
bool isLuthierDeviceModule(const llvm::Module &M);

/// Warn of hooks in device code that is no Luthier device module: they could not be inserted.
void warnOfLostHooks(llvm::Module &M);

/// Turns a copy of the module into what the runtime instruments with. The format is described in
/// compiler_plugin/README.md. `Variant` is what it was also compiled to, for the other wave size. Returns false after
/// reporting why it cannot be done.
bool prepareDeviceModule(llvm::Module &M, const WaveVariant &Variant);

/// Warns by LLVM's diagnostics.
void reportWarning(llvm::Module &M, const llvm::Twine &Message);

/// Reports an error that makes the compilation fail.
void reportError(llvm::Module &M, const llvm::Twine &Message);

} // namespace luthier

#endif // LUTHIER_DEVICEMODULE_H
