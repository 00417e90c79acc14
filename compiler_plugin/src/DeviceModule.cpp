//===- DeviceModule.cpp - a tool's device module, made ready --------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
//===----------------------------------------------------------------------===//
#include "DeviceModule.h"

#include "Compat.h"
#include "Manifest.h"

#include <llvm/ADT/SetVector.h>
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Operator.h>
#include <llvm/IR/Verifier.h>

#include <cstdlib>

using namespace llvm;

namespace luthier {

void report_error(Module &m, const Twine &message) { m.getContext().emitError("luthier: " + message); }

bool is_luthier_device_module(const Module &m) {
  return compat::target_triple(m).isAMDGCN() && m.getNamedValue(kReservedVariable);
}

namespace {

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// Name of a function in the source.
struct SourceName {
  std::string qualified; ///< `namespace::name`, without template arguments
  std::string full;      ///< `namespace::name<arguments>(parameters)`
};

/// Demangle an Itanium name; return a C name unchanged.
SourceName source_name(const std::string &symbol) {
  ItaniumPartialDemangler demangler; // refers to the text of `symbol`
  if (demangler.partialDemangle(symbol.c_str()) || !demangler.isFunction())
    return {symbol, symbol};
  auto take = [](char *text) {
    std::string result = text ? text : "";
    std::free(text);
    return result;
  };
  std::string context = take(demangler.getFunctionDeclContextName(nullptr, nullptr));
  std::string base = take(demangler.getFunctionBaseName(nullptr, nullptr));
  return {context.empty() ? base : context + "::" + base,
          take(demangler.getFunctionName(nullptr, nullptr)) + take(demangler.getFunctionParameters(nullptr, nullptr))};
}

//===----------------------------------------------------------------------===//
// Annotations
//===----------------------------------------------------------------------===//

bool is_kernel(const Function &f) { return f.getCallingConv() == CallingConv::AMDGPU_KERNEL; }

bool can_be_hook(const Function &f) {
  return f.getReturnType()->isVoidTy() && !f.isVarArg() && !is_kernel(f) && !f.isDeclaration();
}

/// `Tool` of `luthier::detail::membersAreHooks<Tool>()`.
std::string class_of_marker(const Function &marker) {
  std::string name = source_name(marker.getName().str()).full;
  size_t open = name.find('<'), close = name.rfind('>');
  return open < close && close != std::string::npos ? name.substr(open + 1, close - open - 1) : "";
}

/// Add the hooks that are only `__attribute__((device, used)) static void` members of a class that `marker` is
/// for.
void add_members(Module &m, const Function &marker, SmallPtrSetImpl<const Function *> &seen, Annotations &result) {
  std::string prefix = class_of_marker(marker) + "::";
  SmallVector<GlobalValue *, 16> used;
  collectUsedGlobalVariables(m, used, /*CompilerUsed=*/false);
  collectUsedGlobalVariables(m, used, /*CompilerUsed=*/true);
  SmallPtrSet<const GlobalValue *, 16> is_used(used.begin(), used.end());
  for (Function &f : m) {
    bool is_member = source_name(f.getName().str()).qualified.compare(0, prefix.size(), prefix) == 0;
    if (is_member && is_used.count(&f) && can_be_hook(f) && seen.insert(&f).second)
      result.hooks.push_back({&f, /*File=*/"", /*Line=*/0});
  }
}

StringRef string_constant(const Constant *pointer) {
  auto *global = dyn_cast<GlobalVariable>(pointer->stripPointerCasts());
  auto *data = global && global->hasInitializer() ? dyn_cast<ConstantDataArray>(global->getInitializer()) : nullptr;
  return data && data->isCString() ? data->getAsCString() : StringRef();
}

Annotations read_annotations(Module &m) {
  Annotations result;
  auto *table = m.getGlobalVariable("llvm.global.annotations");
  auto *rows = table && table->hasInitializer() ? dyn_cast<ConstantArray>(table->getInitializer()) : nullptr;
  if (!rows)
    return result;
  SmallPtrSet<const Function *, 16> seen;
  SmallVector<const Function *, 2> markers;
  for (const Use &row : rows->operands()) {
    // { annotated value, annotation, file, line, arguments }
    auto *fields = dyn_cast<ConstantStruct>(row);
    if (!fields || fields->getNumOperands() < 4)
      continue;
    auto *annotated = dyn_cast<Function>(fields->getOperand(0)->stripPointerCastsAndAliases());
    StringRef kind = string_constant(fields->getOperand(1));
    if (annotated && kind == kMembersAnnotation)
      markers.push_back(annotated);
    if (!annotated || (kind != kHookAttribute && kind != kIntrinsicAttribute) || !seen.insert(annotated).second)
      continue;
    auto *line = dyn_cast<ConstantInt>(fields->getOperand(3));
    AnnotatedFunction entry{annotated, string_constant(fields->getOperand(2)).str(),
                            line ? unsigned(line->getZExtValue()) : 0};
    (kind == kHookAttribute ? result.hooks : result.intrinsics).push_back(std::move(entry));
  }
  for (const Function *marker : markers)
    add_members(m, *marker, seen, result);
  return result;
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// Return the globals that `roots` need, themselves included: through calls, operands, initialisers.
SetVector<GlobalValue *> reachable(ArrayRef<GlobalValue *> roots, const SmallPtrSetImpl<const Function *> &opaque) {
  SetVector<GlobalValue *> members(roots.begin(), roots.end());
  SmallPtrSet<const Constant *, 32> seen;
  SmallVector<const Constant *, 32> constants;
  for (unsigned i = 0; i < members.size(); ++i) { // grows while it runs
    auto visit = [&](const Value *operand) {
      if (auto *c = dyn_cast<Constant>(operand))
        constants.push_back(c);
      while (!constants.empty()) {
        const Constant *c = constants.pop_back_val();
        if (auto *global = dyn_cast<GlobalValue>(c)) {
          members.insert(const_cast<GlobalValue *>(global));
        } else if (seen.insert(c).second) {
          for (const Use &operand : c->operands())
            if (auto *inner = dyn_cast<Constant>(operand))
              constants.push_back(inner);
        }
      }
    };
    GlobalValue *global = members[i];
    if (auto *f = dyn_cast<Function>(global)) {
      if (!opaque.count(f))
        for (const Instruction &inst : instructions(*f))
          for (const Use &operand : inst.operands())
            visit(operand);
    } else if (global->getNumOperands()) {
      visit(global->getOperand(0)); // the initialiser
    }
  }
  return members;
}

/// Return whether an inline assembly template produces no instruction: empty, or comments alone, as used to hide values
/// from the optimizer. `constraints` must leave the choice of registers to the compiler.
bool is_empty_assembly(const InlineAsm &assembly) {
  StringRef rest = assembly.getAsmString();
  while (!rest.empty()) {
    rest = rest.ltrim(" \t\n\r");
    if (rest.empty() || rest.front() == ';' || rest.take_front(2) == "//")
      rest = rest.split('\n').second;
    else
      return false;
  }
  for (const InlineAsm::ConstraintInfo &constraint : assembly.ParseConstraints())
    for (const std::string &code : constraint.Codes)
      if (StringRef(code).take_front(1) == "{" && code != "{memory}")
        return false;
  return true;
}

/// Report inline assembly in `f`; clang shows the source line by the call's `srcloc`.
bool has_inline_assembly(Function &f) {
  bool has_assembly = false;
  for (Instruction &inst : instructions(f)) {
    auto *call = dyn_cast<CallBase>(&inst);
    auto *assembly = call ? dyn_cast<InlineAsm>(call->getCalledOperand()) : nullptr;
    if (!assembly || is_empty_assembly(*assembly))
      continue;
    std::string place;
    if (const DebugLoc &location = call->getDebugLoc())
      place = (location->getFilename() + ":" + Twine(location.getLine()) + ": ").str();
    std::string message = place +
                          "luthier: inline assembly is not allowed in hooks and what they call, because its registers "
                          "are not known; use an intrinsic (in function '" +
                          demangle(f.getName().str()) + "')";
    f.getContext().diagnose(DiagnosticInfoInlineAsm(*call, message, DS_Error));
    has_assembly = true;
  }
  return has_assembly;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void erase_global(GlobalValue &global) {
  global.replaceAllUsesWith(PoisonValue::get(global.getType()));
  global.eraseFromParent();
}

/// `llvm.used` and the like, and everything else in sections that only the compiler reads.
void erase_compiler_globals(Module &m) {
  for (GlobalVariable &global : make_early_inc_range(m.globals()))
    if (global.hasAppendingLinkage())
      erase_global(global);
  for (GlobalVariable &global : make_early_inc_range(m.globals()))
    if (global.getSection() == "llvm.metadata")
      erase_global(global);
}

void resolve_aliases(Module &m, Manifest &record) {
  for (GlobalAlias &alias : make_early_inc_range(m.aliases())) {
    APInt offset(m.getDataLayout().getIndexTypeSizeInBits(alias.getType()), 0);
    const Value *base =
        alias.getAliasee()->stripAndAccumulateConstantOffsets(m.getDataLayout(), offset, /*AllowNonInbounds=*/true);
    if (auto *global = dyn_cast<GlobalValue>(base); global && !alias.hasLocalLinkage())
      record.add_alias(alias.getName(), global->getName(), offset.getSExtValue());
    alias.replaceAllUsesWith(alias.getAliasee());
    alias.eraseFromParent();
  }
}

/// `<namespace::name>[.<return type>].<argument types…>` in LLVM's type spelling.
std::string intrinsic_name(const std::string &qualified_name, const FunctionType &signature) {
  std::string name = qualified_name;
  raw_string_ostream stream(name);
  if (!signature.getReturnType()->isVoidTy()) {
    stream << '.';
    signature.getReturnType()->print(stream, /*IsForDebug=*/false, /*NoDetails=*/true);
  }
  for (Type *parameter : signature.params()) {
    stream << '.';
    parameter->print(stream, /*IsForDebug=*/false, /*NoDetails=*/true);
  }
  return stream.str();
}

/// Turn an intrinsic's definition into a declaration about which nothing is assumed. Two instantiations with the same
/// name by LLVM's types (readReg<int>, readReg<unsigned>) become one.
void finalize_intrinsic(Function &f, Manifest &record) {
  LLVMContext &context = f.getContext();
  std::string symbol = f.getName().str();
  SourceName source = source_name(symbol);
  std::string name = intrinsic_name(source.qualified, *f.getFunctionType());
  record.add_intrinsic(name, source.full);

  f.deleteBody(); // also makes it external
  f.setComdat(nullptr);
  f.clearMetadata();
  f.setAttributes({});
  f.setVisibility(GlobalValue::DefaultVisibility);
  f.setUnnamedAddr(GlobalValue::UnnamedAddr::None);
  f.setDSOLocal(false);
  f.addFnAttr(Attribute::Convergent);
  f.addFnAttr(Attribute::NoUnwind);
  f.addFnAttr(kIntrinsicAttribute, source.qualified);
  for (User *u : f.users())
    if (auto *call = dyn_cast<CallInst>(u); call && call->getCalledOperand() == &f) {
      call->setAttributes(
          AttributeList().addFnAttribute(context, Attribute::Convergent).addFnAttribute(context, Attribute::NoUnwind));
      call->setTailCallKind(CallInst::TCK_None);
      call->dropUnknownNonDebugMetadata();
      if (isa<FPMathOperator>(call))
        call->copyFastMathFlags(FastMathFlags());
    }

  Module &m = *f.getParent();
  if (Function *same = m.getFunction(name); same && same != &f && same->getFunctionType() == f.getFunctionType()) {
    f.replaceAllUsesWith(same);
    f.eraseFromParent();
  } else {
    f.setName(name);
  }
}

/// Remove from a function all attributes that hold only in its own compilation: optimization settings of -O0, and what
/// the optimizer inferred from the bodies of intrinsics or about launches.
void neutralize_attributes(Function &f) {
  // -O0 gives every function optnone and noinline. Where noinline is the author's own, it is left as a wish: code that
  // is spliced into a kernel has no other place for what it calls unless the runtime makes one.
  if (f.hasFnAttribute(Attribute::NoInline) && !f.hasFnAttribute(Attribute::OptimizeNone))
    f.addFnAttr(kNoInlineWish);
  f.removeFnAttr(Attribute::OptimizeNone);
  f.removeFnAttr(Attribute::NoInline);
  f.removeFnAttrs(compat::inferred_function_attributes());
  for (Argument &parameter : f.args())
    f.removeParamAttrs(parameter.getArgNo(), compat::inferred_parameter_attributes());
  SmallVector<StringRef, 32> launch;
  for (Attribute attr : f.getAttributes().getFnAttrs())
    if (attr.isStringAttribute())
      if (StringRef kind = attr.getKindAsString(); kind.take_front(7) == "amdgpu-" || kind == "uniform-work-group-size")
        launch.push_back(kind);
  for (StringRef kind : launch)
    f.removeFnAttr(kind);
}

void finalize_hook(Function &f) {
  f.removeFnAttr(kNoInlineWish);
  f.addFnAttr(Attribute::AlwaysInline);
  f.addFnAttr(kHookAttribute);
  f.setLinkage(GlobalValue::ExternalLinkage);
  f.setVisibility(GlobalValue::DefaultVisibility);
  f.setDSOLocal(false);
}

bool is_cuid(const GlobalVariable &global) {
  return global.getName().take_front(sizeof(kCuidPrefix) - 1) == kCuidPrefix;
}

/// Return whether nothing can change the variable's value, so that it may be folded into code.
bool is_known_constant(const GlobalVariable &global) {
  return global.isConstant() && global.hasDefinitiveInitializer() && !isa<UndefValue>(global.getInitializer());
}

/// Make a variable a declaration, to be bound to memory that the runtime allocates or the HIP runtime loads.
void externalize(GlobalVariable &global) {
  global.setComdat(nullptr);
  global.clearMetadata();
  if (is_known_constant(global)) {
    // A declaration all the same, whose value is known: so tables and strings fold where a hook is inlined.
    global.setLinkage(GlobalValue::AvailableExternallyLinkage);
  } else {
    global.setInitializer(nullptr);
    global.setLinkage(GlobalValue::ExternalLinkage);
  }
  global.setVisibility(GlobalValue::DefaultVisibility);
  global.setDSOLocal(false);
}

void externalize_variables(Module &m, Manifest &record) {
  // Storage of managed variables first: NAME.managed belongs to NAME.
  DenseMap<GlobalVariable *, GlobalVariable *> managed_storage;
  for (GlobalVariable &global : m.globals())
    if (global.getName().take_back(sizeof(kManagedSuffix) - 1) == kManagedSuffix)
      if (GlobalVariable *pointer = m.getGlobalVariable(global.getName().drop_back(sizeof(kManagedSuffix) - 1), true))
        managed_storage[pointer] = &global;
  SmallPtrSet<GlobalVariable *, 8> storages;
  for (auto [pointer, storage] : managed_storage)
    storages.insert(storage);

  SmallVector<GlobalVariable *, 16> variables;
  for (GlobalVariable &global : m.globals())
    if (!is_cuid(global) && !storages.count(&global) && global.getName() != kReservedVariable)
      variables.push_back(&global);
  for (GlobalVariable *global : variables)
    if (!global->hasName())
      global->setName("__luthier_constant"); // LLVM makes it unique
  // Variables are shared between the variants of a module, by name; constants that only code can name need not be the
  // same.
  if (wave_variant_output())
    for (GlobalVariable *global : variables)
      if (global->hasLocalLinkage() && is_known_constant(*global))
        global->setName(global->getName() + ".wave" + Twine(wave_size(m)));
  for (GlobalVariable *global : variables) {
    auto storage = managed_storage.find(global);
    record.add_variable(*global, storage == managed_storage.end() ? *global : *storage->second);
  }
  for (GlobalVariable *global : variables)
    externalize(*global);
  for (GlobalVariable *storage : storages)
    erase_global(*storage);
  if (GlobalVariable *reserved = m.getGlobalVariable(kReservedVariable, /*AllowInternal=*/true))
    erase_global(*reserved);
}

/// HIP's headers implement threadIdx and similar objects with constants without a value, by properties.
bool can_be_named_by_host(const GlobalVariable &global) {
  bool has_value = global.hasInitializer() && !isa<UndefValue>(global.getInitializer());
  return !global.hasLocalLinkage() && !global.isDiscardableIfUnused() && (has_value || !global.isConstant());
}

/// Remove what no hook needs: unused functions, and variables that only the module's own code can name.
void erase_unreachable(Module &m, const Annotations &annotations) {
  SmallVector<GlobalValue *, 32> roots;
  SmallPtrSet<const Function *, 8> opaque;
  for (const AnnotatedFunction &intrinsic : annotations.intrinsics) {
    opaque.insert(intrinsic.function);
    roots.push_back(intrinsic.function);
  }
  for (const AnnotatedFunction &hook : annotations.hooks)
    roots.push_back(hook.function);
  for (GlobalVariable &global : m.globals())
    if (can_be_named_by_host(global))
      roots.push_back(&global);
  SetVector<GlobalValue *> needed = reachable(roots, opaque);

  SmallVector<GlobalObject *, 32> dead;
  for (GlobalObject &global : m.global_objects())
    if (!needed.count(&global))
      dead.push_back(&global);
  for (GlobalObject *global : dead) { // they may refer to each other
    if (auto *f = dyn_cast<Function>(global))
      f->deleteBody();
    else
      cast<GlobalVariable>(global)->setInitializer(nullptr);
  }
  for (GlobalObject *global : dead)
    erase_global(*global);
}

} // namespace

namespace {

/// LLVM has diagnostics of any severity for plugins only since about release 20.
class Warning : public DiagnosticInfo {
public:
  explicit Warning(std::string message)
      : DiagnosticInfo(getNextAvailablePluginDiagnosticKind(), DS_Warning), message_(std::move(message)) {}
  void print(DiagnosticPrinter &printer) const override { printer << message_; }

private:
  std::string message_;
};

} // namespace

void report_warning(Module &m, const Twine &message) {
  m.getContext().diagnose(Warning(("luthier: " + message).str()));
}

void warn_of_lost_hooks(Module &m) {
  if (!compat::target_triple(m).isAMDGCN())
    return;
  for (const AnnotatedFunction &hook : read_annotations(m).hooks) {
    if (hook.function->isDeclaration())
      continue;
    report_warning(m, Twine(hook.file) + ":" + Twine(hook.line) + ": hook '" +
                          demangle(hook.function->getName().str()) +
                          "' cannot be inserted: its source lacks MARK_LUTHIER_DEVICE_MODULE");
  }
}

bool prepare_device_module(Module &m, const WaveVariant &variant) {
  Annotations annotations = read_annotations(m);
  erase_compiler_globals(m);
  Manifest record(m);
  resolve_aliases(m, record);
  m.setModuleInlineAsm(""); // no hook can reach it except by symbols of the application

  bool failed = false;
  for (const AnnotatedFunction &hook : annotations.hooks) {
    if (can_be_hook(*hook.function))
      continue;
    report_error(m, Twine(hook.file) + ":" + Twine(hook.line) + ": hook '" + demangle(hook.function->getName().str()) +
                        "' must be a device function, defined here, that returns nothing and has a fixed number of "
                        "parameters");
    failed = true;
  }
  for (Function &f : make_early_inc_range(m))
    if (is_kernel(f))
      erase_global(f);
  erase_unreachable(m, annotations);
  SmallPtrSet<const Function *, 8> intrinsics;
  for (const AnnotatedFunction &intrinsic : annotations.intrinsics)
    intrinsics.insert(intrinsic.function);
  for (Function &f : m)
    if (!intrinsics.count(&f))
      failed |= has_inline_assembly(f);
  if (failed)
    return false;

  for (const AnnotatedFunction &hook : annotations.hooks)
    record.add_hook(hook);
  for (const AnnotatedFunction &intrinsic : annotations.intrinsics)
    finalize_intrinsic(*intrinsic.function, record);
  for (Function &f : m) {
    if (f.isDeclaration())
      continue;
    neutralize_attributes(f);
    f.setComdat(nullptr);
    f.setLinkage(GlobalValue::InternalLinkage);
    f.setVisibility(GlobalValue::DefaultVisibility);
  }
  for (const AnnotatedFunction &hook : annotations.hooks)
    finalize_hook(*hook.function);
  externalize_variables(m, record);
  StripDebugInfo(m);
  record.write(variant);

  std::string problem;
  raw_string_ostream stream(problem);
  if (verifyModule(m, &stream)) {
    report_error(m, "the prepared module is broken, which is a bug of Luthier's compiler plugin: " + stream.str());
    return false;
  }
  return true;
}

} // namespace luthier
