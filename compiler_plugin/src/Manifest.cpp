//===- Manifest.cpp - what the clone would otherwise lose -----------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
//===----------------------------------------------------------------------===//
#include "Manifest.h"

#include "Compat.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/BinaryFormat/Dwarf.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Operator.h>
#include <llvm/Support/Base64.h>
#include <llvm/Support/SHA256.h>

using namespace llvm;

namespace luthier {

namespace {

// Strings go into JSON values as std::string: a StringRef would not be copied, and names change before they are
// written.

constexpr int FormatVersion = 2;
constexpr unsigned ConstantAddressSpace = 4; // of AMDGPU
constexpr char AdditionPrefix[] = "luthier::sAtomicAdd.";

std::string spelling(Type &T) {
  std::string Text;
  raw_string_ostream Stream(Text);
  T.print(Stream, /*IsForDebug=*/false, /*NoDetails=*/true);
  return Stream.str();
}

/// A pointer inside an initial value: `Symbol + Addend` goes to byte `Offset`.
struct Pointer {
  uint64_t Offset;
  std::string Symbol;
  int64_t Addend;
};

/// The bytes of an initial value, in target order (AMDGPU is little-endian, like every host clang runs on with it).
class InitialValue {
public:
  InitialValue(const Constant &Value, const DataLayout &Layout)
      : Layout(Layout), Bytes(Layout.getTypeAllocSize(Value.getType()).getFixedValue(), '\0') {
    write(Value, 0);
  }

  bool isZero() const { return Bytes.find_first_not_of('\0') == std::string::npos; }

  const DataLayout &Layout;
  std::string Bytes;
  SmallVector<Pointer, 4> Pointers;
  bool Complete = true; // false: something is in it that only a linker could compute

private:
  void writeBits(const APInt &Bits, uint64_t Offset) {
    for (unsigned I = 0, Size = (Bits.getBitWidth() + 7) / 8; I < Size; ++I)
      Bytes[Offset + I] = char(Bits.extractBitsAsZExtValue(std::min(8u, Bits.getBitWidth() - 8 * I), 8 * I));
  }

  void write(const Constant &Value, uint64_t Offset) {
    if (Value.isNullValue() || isa<UndefValue>(Value))
      return;
    if (auto *Integer = dyn_cast<ConstantInt>(&Value))
      return writeBits(Integer->getValue(), Offset);
    if (auto *Real = dyn_cast<ConstantFP>(&Value))
      return writeBits(Real->getValueAPF().bitcastToAPInt(), Offset);
    if (auto *Struct = dyn_cast<ConstantStruct>(&Value)) {
      const StructLayout &Fields = *Layout.getStructLayout(Struct->getType());
      for (unsigned I = 0; I < Struct->getNumOperands(); ++I)
        write(*Struct->getOperand(I), Offset + uint64_t(Fields.getElementOffset(I)));
      return;
    }
    if (isa<ConstantDataSequential>(Value) || isa<ConstantAggregate>(Value)) {
      auto *Vector = dyn_cast<FixedVectorType>(Value.getType());
      Type *Element = Vector ? Vector->getElementType() : cast<ArrayType>(Value.getType())->getElementType();
      uint64_t Count = Vector ? Vector->getNumElements() : cast<ArrayType>(Value.getType())->getNumElements();
      // Vector elements are packed, array elements padded to their alignment.
      uint64_t Bits = Layout.getTypeSizeInBits(Element).getFixedValue();
      if (Vector && Bits % 8) {
        Complete = false;
        return;
      }
      uint64_t Stride = Vector ? Bits / 8 : Layout.getTypeAllocSize(Element).getFixedValue();
      for (uint64_t I = 0; I < Count; ++I)
        write(*Value.getAggregateElement(unsigned(I)), Offset + I * Stride);
      return;
    }
    writeAddress(Value, Offset);
  }

  void writeAddress(const Constant &Value, uint64_t Offset) {
    const auto *Address = &Value;
    if (auto *Cast = dyn_cast<PtrToIntOperator>(Address))
      Address = cast<Constant>(Cast->getPointerOperand());
    if (Address->getType()->isPointerTy()) {
      APInt Addend(Layout.getIndexTypeSizeInBits(Address->getType()), 0);
      const auto *Base = Address->stripAndAccumulateConstantOffsets(Layout, Addend, /*AllowNonInbounds=*/true);
      while (auto *Space = dyn_cast<AddrSpaceCastOperator>(Base)) // global and generic addresses are the same
        Base = Space->getPointerOperand()->stripAndAccumulateConstantOffsets(Layout, Addend, true);
      if (auto *Global = dyn_cast<GlobalValue>(Base)) {
        Pointers.push_back({Offset, Global->getName().str(), Addend.getSExtValue()});
        return;
      }
    }
    Complete = false;
  }
};

//===----------------------------------------------------------------------===//
// Variables that are only added to
//===----------------------------------------------------------------------===//

/// Return whether a value is a 32- or 64-bit integer and no address.
bool isSummand(const Value &Number) {
  return (Number.getType()->isIntegerTy(32) || Number.getType()->isIntegerTy(64)) && !isa<ConstantExpr>(Number);
}

/// Return whether `Place`, an operand, is where an atomic addition goes whose result nothing uses.
bool isAddition(const Use &Place) {
  const User &By = *Place.getUser();
  if (Place.getOperandNo() != 0 || !By.use_empty()) // operand 0 is the pointer of both kinds
    return false;
  if (auto *Atomic = dyn_cast<AtomicRMWInst>(&By))
    return Atomic->getOperation() == AtomicRMWInst::Add && Atomic->getOrdering() == AtomicOrdering::Monotonic &&
           !Atomic->isVolatile() && isSummand(*Atomic->getValOperand());
  auto *Call = dyn_cast<CallInst>(&By);
  auto *Callee = Call ? Call->getCalledFunction() : nullptr;
  return Callee && Callee->getName().take_front(sizeof(AdditionPrefix) - 1) == AdditionPrefix &&
         Call->arg_size() == 2 && isSummand(*Call->getArgOperand(1));
}

/// Return whether `By` is a constant that nothing uses: a part of `llvm.used`, say, which is gone.
bool isLeftOver(const User &By) {
  auto *Value = dyn_cast<Constant>(&By);
  return Value && !isa<GlobalValue>(Value) && !Value->isConstantUsed();
}

/// Return whether code does nothing with what `Address` points to but add to it.
bool isOnlyAddedTo(const Value &Address) {
  return all_of(Address.uses(), [](const Use &Place) {
    const User &By = *Place.getUser();
    if (isLeftOver(By))
      return true;
    bool IsSameObject = isa<AddrSpaceCastOperator>(By) || (isa<GEPOperator>(By) && Place.getOperandNo() == 0);
    return IsSameObject ? isOnlyAddedTo(By) : isAddition(Place);
  });
}

/// The same of the variable that `Pointer` points to, which is a managed variable's symbol.
bool isOnlyAddedThrough(const GlobalVariable &Pointer) {
  return all_of(Pointer.users(), [](const User *By) {
    auto *Load = dyn_cast<LoadInst>(By);
    return Load ? Load->isSimple() && Load->getType()->isPointerTy() && isOnlyAddedTo(*Load) : isLeftOver(*By);
  });
}

/// The debug-info type without typedefs and qualifiers.
const DIType *underlying(const DIType *Type) {
  while (auto *Derived = dyn_cast_or_null<DIDerivedType>(Type)) {
    if (Derived->getTag() != dwarf::DW_TAG_typedef && Derived->getTag() != dwarf::DW_TAG_const_type &&
        Derived->getTag() != dwarf::DW_TAG_volatile_type && Derived->getTag() != dwarf::DW_TAG_restrict_type)
      break;
    Type = Derived->getBaseType();
  }
  return Type;
}

/// Add what is known of a parameter's sign: by the ABI for small integers, by debug info for the others.
void addSign(json::Object &Entry, const Argument &Parameter, const DIType *Source) {
  if (!Parameter.getType()->isIntegerTy())
    return;
  if (auto *Basic = dyn_cast_or_null<DIBasicType>(underlying(Source))) {
    if (auto Sign = Basic->getSignedness())
      Entry["signed"] = *Sign == DIBasicType::Signedness::Signed;
  } else if (Parameter.hasSExtAttr() || Parameter.hasZExtAttr()) {
    Entry["signed"] = Parameter.hasSExtAttr();
  }
}

} // namespace

Manifest::Manifest(Module &M) : M(M), WaveSize(waveSize(M)) {
  for (const Function &F : M)
    if (Attribute Cpu = F.getFnAttribute("target-cpu"); Cpu.isValid()) {
      Target = Cpu.getValueAsString().str();
      break;
    }
}

void Manifest::addHook(const AnnotatedFunction &Hook) {
  const Function &F = *Hook.Function;
  const DISubprogram *Program = F.getSubprogram();
  SmallVector<const DIType *, 8> Types;
  SmallVector<StringRef, 8> Names;
  if (Program) {
    if (auto *Signature = Program->getType())
      for (unsigned I = 1; I < Signature->getTypeArray().size(); ++I)
        Types.push_back(Signature->getTypeArray()[I]);
    Names.resize(Types.size());
    for (const DINode *Node : Program->getRetainedNodes())
      if (auto *Variable = dyn_cast<DILocalVariable>(Node);
          Variable && Variable->getArg() && Variable->getArg() <= Names.size())
        Names[Variable->getArg() - 1] = Variable->getName();
  }
  // Where a parameter takes several IR arguments or none, debug info cannot be matched to them.
  bool Matched = Types.size() == F.arg_size();

  json::Array Parameters;
  for (const Argument &Parameter : F.args()) {
    json::Object Entry{{"type", spelling(*Parameter.getType())}};
    const DIType *Source = Matched ? Types[Parameter.getArgNo()] : nullptr;
    addSign(Entry, Parameter, Source);
    if (Matched && !Names[Parameter.getArgNo()].empty())
      Entry["name"] = Names[Parameter.getArgNo()].str();
    if (Type *Pointee = Parameter.getParamByValType())
      Entry["byval"] = spelling(*Pointee);
    Parameters.push_back(std::move(Entry));
  }
  json::Object Entry{
      {"name", F.getName().str()}, {"source", demangle(F.getName().str())}, {"parameters", std::move(Parameters)}};
  if (Program && Program->getLine()) {
    Entry["file"] = Program->getFilename().str();
    Entry["line"] = Program->getLine();
  } else if (!Hook.File.empty()) {
    Entry["file"] = Hook.File;
    Entry["line"] = Hook.Line;
  }
  Hooks.push_back(std::move(Entry));
}

void Manifest::addIntrinsic(StringRef Name, StringRef Source) { Intrinsics[Name.str()].push_back(Source.str()); }

void Manifest::addVariable(const GlobalVariable &Variable, const GlobalVariable &Storage) {
  const DataLayout &Layout = M.getDataLayout();
  Type *ValueType = Storage.getValueType();
  json::Object Entry{
      {"name", Variable.getName().str()},
      {"type", spelling(*ValueType)},
      {"size", int64_t(Layout.getTypeAllocSize(ValueType).getFixedValue())},
      {"align", int64_t(Storage.getPointerAlignment(Layout).value())},
      {"address_space", Variable.getAddressSpace()},
  };
  if (&Variable != &Storage)
    Entry["managed"] = true;
  if (Variable.isConstant() || Variable.getAddressSpace() == ConstantAddressSpace)
    Entry["constant"] = true; // clang 15 tells __constant__ by address space alone
  else if (&Variable == &Storage ? isOnlyAddedTo(Variable) : isOnlyAddedThrough(Variable))
    Entry["only_added"] = true;
  if (Variable.hasLocalLinkage())
    Entry["local"] = true;
  if (Storage.hasInitializer()) {
    InitialValue Initial(*Storage.getInitializer(), Layout);
    if (!Initial.isZero())
      Entry["bytes"] = encodeBase64(Initial.Bytes);
    json::Array Pointers;
    for (const Pointer &Pointer : Initial.Pointers)
      Pointers.push_back(json::Array{int64_t(Pointer.Offset), Pointer.Symbol, Pointer.Addend});
    if (!Pointers.empty())
      Entry["pointers"] = std::move(Pointers);
    if (!Initial.Complete)
      Entry["incomplete"] = true;
  } else {
    Entry["undefined"] = true;
  }
  Variables.push_back(std::move(Entry));
}

void Manifest::addAlias(StringRef Name, StringRef Aliasee, int64_t Offset) {
  Aliases.push_back(json::Object{{"name", Name.str()}, {"of", Aliasee.str()}, {"offset", Offset}});
}

void Manifest::write(const WaveVariant &Variant) {
  json::Array IntrinsicList;
  for (auto &[Name, Sources] : Intrinsics)
    IntrinsicList.push_back(json::Object{{"name", Name}, {"sources", std::move(Sources)}});
  std::string Cuid;
  for (const GlobalVariable &Global : M.globals())
    if (Global.getName().take_front(sizeof(CuidPrefix) - 1) == CuidPrefix)
      Cuid = Global.getName().drop_front(sizeof(CuidPrefix) - 1).str();

  // The first key and its place are part of the format: readers find the text in the bitcode by them.
  std::string Text = "{\"luthier\":" + std::to_string(FormatVersion);
  raw_string_ostream Stream(Text);
  auto Member = [&](StringRef Key, const json::Value &Value) { Stream << ",\"" << Key << "\":" << Value; };
  if (!Variant.Bitcode.empty()) // right behind the version, where readers look for it before they trust the rest
    Member("follows", int64_t(Variant.Bitcode.size()));
  Member("llvm", LLVM_VERSION_STRING);
  Member("source", M.getSourceFileName());
  Member("target", Target);
  Member("wave_size", WaveSize);
  if (!Variant.Problem.empty())
    Member("one_wave_size", json::fixUTF8(Variant.Problem));
  Member("cuid", Cuid);
  Member("hooks", std::move(Hooks));
  Member("intrinsics", std::move(IntrinsicList));
  Member("variables", std::move(Variables));
  Member("aliases", std::move(Aliases));
  Member("sha256", DigestPlaceholder);
  Stream << '}';
  LLVMContext &Context = M.getContext();
  M.getOrInsertNamedMetadata("luthier.manifest")
      ->addOperand(MDNode::get(Context, {MDString::get(Context, Stream.str())}));
}

void sealManifest(std::string &Bitcode) {
  const size_t Place = Bitcode.find(DigestPlaceholder.str(), Bitcode.find("{\"luthier\":"));
  if (Place == std::string::npos)
    return;
  const auto Digest =
      SHA256::hash(ArrayRef<uint8_t>(reinterpret_cast<const uint8_t *>(Bitcode.data()), Bitcode.size()));
  Bitcode.replace(Place, DigestPlaceholder.size(), toHex(Digest, /*LowerCase=*/true));
}

} // namespace luthier
