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
constexpr char kReservedVariable[] = "__luthier_reserved";
/// Managed variable NAME is a pointer NAME and its initial contents NAME.managed.
constexpr char kManagedSuffix[] = ".managed";
/// Prefix of the symbol that identifies one source across targets; followed by its hash.
constexpr char kCuidPrefix[] = "__hip_cuid_";
/// Function attributes, and the annotations they come from.
constexpr char kHookAttribute[] = "luthier_hook";
constexpr char kIntrinsicAttribute[] = "luthier_intrinsic";
/// Annotation of instances of a function template for the class whose static members are hooks where they are `used`.
constexpr char kMembersAnnotation[] = "luthier_members";
/// In place of `noinline` on functions that hooks call.
constexpr char kNoInlineWish[] = "luthier_noinline";

/// A function with the source place of its annotation.
struct AnnotatedFunction {
  llvm::Function *function;
  std::string file; ///< empty where nothing was annotated
  unsigned line;
};

/// Contents of `llvm.global.annotations`, without duplicates, in module order; then the hooks among members of classes.
struct Annotations {
  llvm::SmallVector<AnnotatedFunction, 8> hooks;
  llvm::SmallVector<AnnotatedFunction, 8> intrinsics;
};

/// Return whether `m` is device code of a Luthier tool, not host code or device code of another program.
bool is_luthier_device_module(const llvm::Module &m);

/// Warn of hooks in device code that is not a Luthier device module: they cannot be inserted.
void warn_of_lost_hooks(llvm::Module &m);

/// Turn a copy of the module into the form that the runtime uses for instrumentation (compiler_plugin/README.md).
/// `variant` is the module compiled for the other wave size. Return false after reporting why it cannot be done.
bool prepare_device_module(llvm::Module &m, const WaveVariant &variant);

/// Warn by LLVM's diagnostics.
void report_warning(llvm::Module &m, const llvm::Twine &message);

/// Report an error that makes the compilation fail.
void report_error(llvm::Module &m, const llvm::Twine &message);

} // namespace luthier

#endif // LUTHIER_DEVICEMODULE_H
