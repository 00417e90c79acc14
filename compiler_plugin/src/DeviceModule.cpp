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

void reportError(Module &M, const Twine &Message) { M.getContext().emitError("luthier: " + Message); }

bool isLuthierDeviceModule(const Module &M) {
  return compat::targetTriple(M).isAMDGCN() && M.getNamedValue(ReservedVariable);
}

namespace {

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// Name of a function in the source.
struct SourceName {
  std::string Qualified; ///< `namespace::name`, without template arguments
  std::string Full;      ///< `namespace::name<arguments>(parameters)`
};

/// Reads an Itanium name; a C name stays as it is.
SourceName sourceName(const std::string &Symbol) {
  ItaniumPartialDemangler Demangler; // refers to the text of `Symbol`
  if (Demangler.partialDemangle(Symbol.c_str()) || !Demangler.isFunction())
    return {Symbol, Symbol};
  auto Take = [](char *Text) {
    std::string Result = Text ? Text : "";
    std::free(Text);
    return Result;
  };
  std::string Context = Take(Demangler.getFunctionDeclContextName(nullptr, nullptr));
  std::string Base = Take(Demangler.getFunctionBaseName(nullptr, nullptr));
  return {Context.empty() ? Base : Context + "::" + Base,
          Take(Demangler.getFunctionName(nullptr, nullptr)) + Take(Demangler.getFunctionParameters(nullptr, nullptr))};
}

//===----------------------------------------------------------------------===//
// Annotations
//===----------------------------------------------------------------------===//

bool isKernel(const Function &F) { return F.getCallingConv() == CallingConv::AMDGPU_KERNEL; }

bool canBeHook(const Function &F) {
  return F.getReturnType()->isVoidTy() && !F.isVarArg() && !isKernel(F) && !F.isDeclaration();
}

/// `Tool` of `luthier::detail::membersAreHooks<Tool>()`.
std::string classOfMarker(const Function &Marker) {
  std::string Name = sourceName(Marker.getName().str()).Full;
  size_t Open = Name.find('<'), Close = Name.rfind('>');
  return Open < Close && Close != std::string::npos ? Name.substr(Open + 1, Close - Open - 1) : "";
}

/// Adds the hooks that are no more than `__attribute__((device, used)) static void` members of a class that `Marker` is
/// for.
void addMembers(Module &M, const Function &Marker, SmallPtrSetImpl<const Function *> &Seen, Annotations &Result) {
  std::string Prefix = classOfMarker(Marker) + "::";
  SmallVector<GlobalValue *, 16> Used;
  collectUsedGlobalVariables(M, Used, /*CompilerUsed=*/false);
  collectUsedGlobalVariables(M, Used, /*CompilerUsed=*/true);
  SmallPtrSet<const GlobalValue *, 16> IsUsed(Used.begin(), Used.end());
  for (Function &F : M) {
    bool IsMember = sourceName(F.getName().str()).Qualified.compare(0, Prefix.size(), Prefix) == 0;
    if (IsMember && IsUsed.count(&F) && canBeHook(F) && Seen.insert(&F).second)
      Result.Hooks.push_back({&F, /*File=*/"", /*Line=*/0});
  }
}

StringRef stringConstant(const Constant *Pointer) {
  auto *Global = dyn_cast<GlobalVariable>(Pointer->stripPointerCasts());
  auto *Data = Global && Global->hasInitializer() ? dyn_cast<ConstantDataArray>(Global->getInitializer()) : nullptr;
  return Data && Data->isCString() ? Data->getAsCString() : StringRef();
}

Annotations readAnnotations(Module &M) {
  Annotations Result;
  auto *Table = M.getGlobalVariable("llvm.global.annotations");
  auto *Rows = Table && Table->hasInitializer() ? dyn_cast<ConstantArray>(Table->getInitializer()) : nullptr;
  if (!Rows)
    return Result;
  SmallPtrSet<const Function *, 16> Seen;
  SmallVector<const Function *, 2> Markers;
  for (const Use &Row : Rows->operands()) {
    // { annotated value, annotation, file, line, arguments }
    auto *Fields = dyn_cast<ConstantStruct>(Row);
    if (!Fields || Fields->getNumOperands() < 4)
      continue;
    auto *Annotated = dyn_cast<Function>(Fields->getOperand(0)->stripPointerCastsAndAliases());
    StringRef Kind = stringConstant(Fields->getOperand(1));
    if (Annotated && Kind == MembersAnnotation)
      Markers.push_back(Annotated);
    if (!Annotated || (Kind != HookAttribute && Kind != IntrinsicAttribute) || !Seen.insert(Annotated).second)
      continue;
    auto *Line = dyn_cast<ConstantInt>(Fields->getOperand(3));
    AnnotatedFunction Entry{Annotated, stringConstant(Fields->getOperand(2)).str(),
                            Line ? unsigned(Line->getZExtValue()) : 0};
    (Kind == HookAttribute ? Result.Hooks : Result.Intrinsics).push_back(std::move(Entry));
  }
  for (const Function *Marker : Markers)
    addMembers(M, *Marker, Seen, Result);
  return Result;
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// The globals that `Roots` need, themselves included: through calls, operands, initialisers.
SetVector<GlobalValue *> reachable(ArrayRef<GlobalValue *> Roots, const SmallPtrSetImpl<const Function *> &Opaque) {
  SetVector<GlobalValue *> Found(Roots.begin(), Roots.end());
  SmallPtrSet<const Constant *, 32> Seen;
  SmallVector<const Constant *, 32> Constants;
  for (unsigned I = 0; I < Found.size(); ++I) { // grows while it runs
    auto Visit = [&](const Value *Operand) {
      if (auto *C = dyn_cast<Constant>(Operand))
        Constants.push_back(C);
      while (!Constants.empty()) {
        const Constant *C = Constants.pop_back_val();
        if (auto *Global = dyn_cast<GlobalValue>(C)) {
          Found.insert(const_cast<GlobalValue *>(Global));
        } else if (Seen.insert(C).second) {
          for (const Use &Operand : C->operands())
            if (auto *Inner = dyn_cast<Constant>(Operand))
              Constants.push_back(Inner);
        }
      }
    };
    GlobalValue *Global = Found[I];
    if (auto *F = dyn_cast<Function>(Global)) {
      if (!Opaque.count(F))
        for (const Instruction &Inst : instructions(*F))
          for (const Use &Operand : Inst.operands())
            Visit(Operand);
    } else if (Global->getNumOperands()) {
      Visit(Global->getOperand(0)); // the initialiser
    }
  }
  return Found;
}

/// Return whether an inline assembly template produces no instruction: empty, or comments alone, as used to hide values
/// from the optimizer. `Constraints` must leave the choice of registers to the compiler.
bool isEmptyAssembly(const InlineAsm &Asm) {
  StringRef Rest = Asm.getAsmString();
  while (!Rest.empty()) {
    Rest = Rest.ltrim(" \t\n\r");
    if (Rest.empty() || Rest.front() == ';' || Rest.take_front(2) == "//")
      Rest = Rest.split('\n').second;
    else
      return false;
  }
  for (const InlineAsm::ConstraintInfo &Constraint : Asm.ParseConstraints())
    for (const std::string &Code : Constraint.Codes)
      if (StringRef(Code).take_front(1) == "{" && Code != "{memory}")
        return false;
  return true;
}

/// Reports inline assembly in `F`; clang shows the source line by the call's `srcloc`.
bool hasInlineAssembly(Function &F) {
  bool Found = false;
  for (Instruction &Inst : instructions(F)) {
    auto *Call = dyn_cast<CallBase>(&Inst);
    auto *Asm = Call ? dyn_cast<InlineAsm>(Call->getCalledOperand()) : nullptr;
    if (!Asm || isEmptyAssembly(*Asm))
      continue;
    std::string Place;
    if (const DebugLoc &Location = Call->getDebugLoc())
      Place = (Location->getFilename() + ":" + Twine(Location.getLine()) + ": ").str();
    std::string Message = Place +
                          "luthier: inline assembly is not allowed in hooks and what they call, for its registers "
                          "cannot be known; use an intrinsic (in function '" +
                          demangle(F.getName().str()) + "')";
    F.getContext().diagnose(DiagnosticInfoInlineAsm(*Call, Message, DS_Error));
    Found = true;
  }
  return Found;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void eraseGlobal(GlobalValue &Global) {
  Global.replaceAllUsesWith(PoisonValue::get(Global.getType()));
  Global.eraseFromParent();
}

/// `llvm.used` and the like, and everything else in sections that only the compiler reads.
void eraseCompilerGlobals(Module &M) {
  for (GlobalVariable &Global : make_early_inc_range(M.globals()))
    if (Global.hasAppendingLinkage())
      eraseGlobal(Global);
  for (GlobalVariable &Global : make_early_inc_range(M.globals()))
    if (Global.getSection() == "llvm.metadata")
      eraseGlobal(Global);
}

void resolveAliases(Module &M, Manifest &Record) {
  for (GlobalAlias &Alias : make_early_inc_range(M.aliases())) {
    APInt Offset(M.getDataLayout().getIndexTypeSizeInBits(Alias.getType()), 0);
    const Value *Base =
        Alias.getAliasee()->stripAndAccumulateConstantOffsets(M.getDataLayout(), Offset, /*AllowNonInbounds=*/true);
    if (auto *Global = dyn_cast<GlobalValue>(Base); Global && !Alias.hasLocalLinkage())
      Record.addAlias(Alias.getName(), Global->getName(), Offset.getSExtValue());
    Alias.replaceAllUsesWith(Alias.getAliasee());
    Alias.eraseFromParent();
  }
}

/// `<namespace::name>[.<return type>].<argument types…>` in LLVM's type spelling.
std::string intrinsicName(const std::string &QualifiedName, const FunctionType &Signature) {
  std::string Name = QualifiedName;
  raw_string_ostream Stream(Name);
  if (!Signature.getReturnType()->isVoidTy()) {
    Stream << '.';
    Signature.getReturnType()->print(Stream, /*IsForDebug=*/false, /*NoDetails=*/true);
  }
  for (Type *Parameter : Signature.params()) {
    Stream << '.';
    Parameter->print(Stream, /*IsForDebug=*/false, /*NoDetails=*/true);
  }
  return Stream.str();
}

/// Turns an intrinsic's definition into a declaration of which nothing is assumed. Two instantiations that have the
/// same name by LLVM's types (readReg<int>, readReg<unsigned>) become one.
void finalizeIntrinsic(Function &F, Manifest &Record) {
  LLVMContext &Context = F.getContext();
  std::string Symbol = F.getName().str();
  SourceName Source = sourceName(Symbol);
  std::string Name = intrinsicName(Source.Qualified, *F.getFunctionType());
  Record.addIntrinsic(Name, Source.Full);

  F.deleteBody(); // also makes it external
  F.setComdat(nullptr);
  F.clearMetadata();
  F.setAttributes({});
  F.setVisibility(GlobalValue::DefaultVisibility);
  F.setUnnamedAddr(GlobalValue::UnnamedAddr::None);
  F.setDSOLocal(false);
  F.addFnAttr(Attribute::Convergent);
  F.addFnAttr(Attribute::NoUnwind);
  F.addFnAttr(IntrinsicAttribute, Source.Qualified);
  for (User *U : F.users())
    if (auto *Call = dyn_cast<CallInst>(U); Call && Call->getCalledOperand() == &F) {
      Call->setAttributes(
          AttributeList().addFnAttribute(Context, Attribute::Convergent).addFnAttribute(Context, Attribute::NoUnwind));
      Call->setTailCallKind(CallInst::TCK_None);
      Call->dropUnknownNonDebugMetadata();
      if (isa<FPMathOperator>(Call))
        Call->copyFastMathFlags(FastMathFlags());
    }

  Module &M = *F.getParent();
  if (Function *Same = M.getFunction(Name); Same && Same != &F && Same->getFunctionType() == F.getFunctionType()) {
    F.replaceAllUsesWith(Same);
    F.eraseFromParent();
  } else {
    F.setName(Name);
  }
}

/// Drops from a function everything that holds only where it was compiled: optimization settings of -O0, and what the
/// optimizer concluded from the bodies of intrinsics or about launches.
void neutralizeAttributes(Function &F) {
  // -O0 gives every function optnone and noinline. Where noinline is the author's own, it is left as a wish: code that
  // is spliced into a kernel has no other place for what it calls unless the runtime makes one.
  if (F.hasFnAttribute(Attribute::NoInline) && !F.hasFnAttribute(Attribute::OptimizeNone))
    F.addFnAttr(NoInlineWish);
  F.removeFnAttr(Attribute::OptimizeNone);
  F.removeFnAttr(Attribute::NoInline);
  F.removeFnAttrs(compat::inferredFunctionAttributes());
  for (Argument &Parameter : F.args())
    F.removeParamAttrs(Parameter.getArgNo(), compat::inferredParameterAttributes());
  SmallVector<StringRef, 32> Launch;
  for (Attribute Attr : F.getAttributes().getFnAttrs())
    if (Attr.isStringAttribute())
      if (StringRef Kind = Attr.getKindAsString(); Kind.take_front(7) == "amdgpu-" || Kind == "uniform-work-group-size")
        Launch.push_back(Kind);
  for (StringRef Kind : Launch)
    F.removeFnAttr(Kind);
}

void finalizeHook(Function &F) {
  F.removeFnAttr(NoInlineWish);
  F.addFnAttr(Attribute::AlwaysInline);
  F.addFnAttr(HookAttribute);
  F.setLinkage(GlobalValue::ExternalLinkage);
  F.setVisibility(GlobalValue::DefaultVisibility);
  F.setDSOLocal(false);
}

bool isCuid(const GlobalVariable &Global) { return Global.getName().take_front(sizeof(CuidPrefix) - 1) == CuidPrefix; }

/// Return whether nothing can change the variable's value, so that it may be folded into code.
bool isKnownConstant(const GlobalVariable &Global) {
  return Global.isConstant() && Global.hasDefinitiveInitializer() && !isa<UndefValue>(Global.getInitializer());
}

/// Makes a variable a declaration, to be bound to what the runtime allocated or the HIP runtime loaded.
void externalize(GlobalVariable &Global) {
  Global.setComdat(nullptr);
  Global.clearMetadata();
  if (isKnownConstant(Global)) {
    // A declaration all the same, whose value is known: so tables and strings fold where a hook is inlined.
    Global.setLinkage(GlobalValue::AvailableExternallyLinkage);
  } else {
    Global.setInitializer(nullptr);
    Global.setLinkage(GlobalValue::ExternalLinkage);
  }
  Global.setVisibility(GlobalValue::DefaultVisibility);
  Global.setDSOLocal(false);
}

void externalizeVariables(Module &M, Manifest &Record) {
  // Storage of managed variables first: NAME.managed belongs to NAME.
  DenseMap<GlobalVariable *, GlobalVariable *> ManagedStorage;
  for (GlobalVariable &Global : M.globals())
    if (Global.getName().take_back(sizeof(ManagedSuffix) - 1) == ManagedSuffix)
      if (GlobalVariable *Pointer = M.getGlobalVariable(Global.getName().drop_back(sizeof(ManagedSuffix) - 1), true))
        ManagedStorage[Pointer] = &Global;
  SmallPtrSet<GlobalVariable *, 8> Storages;
  for (auto [Pointer, Storage] : ManagedStorage)
    Storages.insert(Storage);

  SmallVector<GlobalVariable *, 16> Variables;
  for (GlobalVariable &Global : M.globals())
    if (!isCuid(Global) && !Storages.count(&Global) && Global.getName() != ReservedVariable)
      Variables.push_back(&Global);
  for (GlobalVariable *Global : Variables)
    if (!Global->hasName())
      Global->setName("__luthier_constant"); // LLVM makes it unique
  // Variables are shared between the variants of a module, by name; constants that only code can name need not be the
  // same.
  if (waveVariantOutput())
    for (GlobalVariable *Global : Variables)
      if (Global->hasLocalLinkage() && isKnownConstant(*Global))
        Global->setName(Global->getName() + ".wave" + Twine(waveSize(M)));
  for (GlobalVariable *Global : Variables) {
    auto Storage = ManagedStorage.find(Global);
    Record.addVariable(*Global, Storage == ManagedStorage.end() ? *Global : *Storage->second);
  }
  for (GlobalVariable *Global : Variables)
    externalize(*Global);
  for (GlobalVariable *Storage : Storages)
    eraseGlobal(*Storage);
  if (GlobalVariable *Reserved = M.getGlobalVariable(ReservedVariable, /*AllowInternal=*/true))
    eraseGlobal(*Reserved);
}

/// Constants without a value are how HIP's headers implement threadIdx and its like, by properties.
bool canBeNamedByHost(const GlobalVariable &Global) {
  bool HasValue = Global.hasInitializer() && !isa<UndefValue>(Global.getInitializer());
  return !Global.hasLocalLinkage() && !Global.isDiscardableIfUnused() && (HasValue || !Global.isConstant());
}

/// Removes what no hook needs: unused functions, and variables that only the module's own code can name.
void eraseUnreachable(Module &M, const Annotations &Found) {
  SmallVector<GlobalValue *, 32> Roots;
  SmallPtrSet<const Function *, 8> Opaque;
  for (const AnnotatedFunction &Intrinsic : Found.Intrinsics) {
    Opaque.insert(Intrinsic.Function);
    Roots.push_back(Intrinsic.Function);
  }
  for (const AnnotatedFunction &Hook : Found.Hooks)
    Roots.push_back(Hook.Function);
  for (GlobalVariable &Global : M.globals())
    if (canBeNamedByHost(Global))
      Roots.push_back(&Global);
  SetVector<GlobalValue *> Needed = reachable(Roots, Opaque);

  SmallVector<GlobalObject *, 32> Dead;
  for (GlobalObject &Global : M.global_objects())
    if (!Needed.count(&Global))
      Dead.push_back(&Global);
  for (GlobalObject *Global : Dead) { // they may refer to each other
    if (auto *F = dyn_cast<Function>(Global))
      F->deleteBody();
    else
      cast<GlobalVariable>(Global)->setInitializer(nullptr);
  }
  for (GlobalObject *Global : Dead)
    eraseGlobal(*Global);
}

} // namespace

namespace {

/// LLVM has a diagnostic of any severity for plugins only since release 20 or so.
class Warning : public DiagnosticInfo {
public:
  explicit Warning(std::string Message)
      : DiagnosticInfo(getNextAvailablePluginDiagnosticKind(), DS_Warning), Message(std::move(Message)) {}
  void print(DiagnosticPrinter &Printer) const override { Printer << Message; }

private:
  std::string Message;
};

} // namespace

void reportWarning(Module &M, const Twine &Message) { M.getContext().diagnose(Warning(("luthier: " + Message).str())); }

void warnOfLostHooks(Module &M) {
  if (!compat::targetTriple(M).isAMDGCN())
    return;
  for (const AnnotatedFunction &Hook : readAnnotations(M).Hooks) {
    if (Hook.Function->isDeclaration())
      continue;
    reportWarning(M, Twine(Hook.File) + ":" + Twine(Hook.Line) + ": hook '" + demangle(Hook.Function->getName().str()) +
                         "' cannot be inserted: its source says no MARK_LUTHIER_DEVICE_MODULE");
  }
}

bool prepareDeviceModule(Module &M, const WaveVariant &Variant) {
  Annotations Found = readAnnotations(M);
  eraseCompilerGlobals(M);
  Manifest Record(M);
  resolveAliases(M, Record);
  M.setModuleInlineAsm(""); // no hook can reach it except by symbols of the application

  bool Failed = false;
  for (const AnnotatedFunction &Hook : Found.Hooks) {
    if (canBeHook(*Hook.Function))
      continue;
    reportError(M, Twine(Hook.File) + ":" + Twine(Hook.Line) + ": hook '" + demangle(Hook.Function->getName().str()) +
                       "' must be a device function, defined here, that returns nothing and has a fixed number of "
                       "parameters");
    Failed = true;
  }
  for (Function &F : make_early_inc_range(M))
    if (isKernel(F))
      eraseGlobal(F);
  eraseUnreachable(M, Found);
  SmallPtrSet<const Function *, 8> Intrinsics;
  for (const AnnotatedFunction &Intrinsic : Found.Intrinsics)
    Intrinsics.insert(Intrinsic.Function);
  for (Function &F : M)
    if (!Intrinsics.count(&F))
      Failed |= hasInlineAssembly(F);
  if (Failed)
    return false;

  for (const AnnotatedFunction &Hook : Found.Hooks)
    Record.addHook(Hook);
  for (const AnnotatedFunction &Intrinsic : Found.Intrinsics)
    finalizeIntrinsic(*Intrinsic.Function, Record);
  for (Function &F : M) {
    if (F.isDeclaration())
      continue;
    neutralizeAttributes(F);
    F.setComdat(nullptr);
    F.setLinkage(GlobalValue::InternalLinkage);
    F.setVisibility(GlobalValue::DefaultVisibility);
  }
  for (const AnnotatedFunction &Hook : Found.Hooks)
    finalizeHook(*Hook.Function);
  externalizeVariables(M, Record);
  StripDebugInfo(M);
  Record.write(Variant);

  std::string Problem;
  raw_string_ostream Stream(Problem);
  if (verifyModule(M, &Stream)) {
    reportError(M, "the prepared module is broken, which is a bug of Luthier's compiler plugin: " + Stream.str());
    return false;
  }
  return true;
}

} // namespace luthier
