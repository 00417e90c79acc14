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

constexpr int kFormatVersion = 2;
constexpr unsigned kConstantAddressSpace = 4; // of AMDGPU
constexpr char kAdditionPrefix[] = "luthier::sAtomicAdd.";

std::string spelling(Type &t) {
  std::string text;
  raw_string_ostream stream(text);
  t.print(stream, /*IsForDebug=*/false, /*NoDetails=*/true);
  return stream.str();
}

/// A pointer inside an initial value: `symbol + addend` is at byte `offset`.
struct Pointer {
  uint64_t offset;
  std::string symbol;
  int64_t addend;
};

/// The bytes of an initial value, in target order (AMDGPU is little-endian, like every host clang runs on with it).
class InitialValue {
public:
  InitialValue(const Constant &value, const DataLayout &layout)
      : layout(layout), bytes(layout.getTypeAllocSize(value.getType()).getFixedValue(), '\0') {
    write(value, 0);
  }

  bool is_zero() const { return bytes.find_first_not_of('\0') == std::string::npos; }

  const DataLayout &layout;
  std::string bytes;
  SmallVector<Pointer, 4> pointers;
  bool complete = true; // false: a part of it can only be computed by a linker

private:
  void write_bits(const APInt &bits, uint64_t offset) {
    for (unsigned i = 0, size = (bits.getBitWidth() + 7) / 8; i < size; ++i)
      bytes[offset + i] = char(bits.extractBitsAsZExtValue(std::min(8u, bits.getBitWidth() - 8 * i), 8 * i));
  }

  void write(const Constant &value, uint64_t offset) {
    if (value.isNullValue() || isa<UndefValue>(value))
      return;
    if (auto *integer = dyn_cast<ConstantInt>(&value))
      return write_bits(integer->getValue(), offset);
    if (auto *real = dyn_cast<ConstantFP>(&value))
      return write_bits(real->getValueAPF().bitcastToAPInt(), offset);
    if (auto *structure = dyn_cast<ConstantStruct>(&value)) {
      const StructLayout &fields = *layout.getStructLayout(structure->getType());
      for (unsigned i = 0; i < structure->getNumOperands(); ++i)
        write(*structure->getOperand(i), offset + uint64_t(fields.getElementOffset(i)));
      return;
    }
    if (isa<ConstantDataSequential>(value) || isa<ConstantAggregate>(value)) {
      auto *vector = dyn_cast<FixedVectorType>(value.getType());
      Type *element = vector ? vector->getElementType() : cast<ArrayType>(value.getType())->getElementType();
      uint64_t count = vector ? vector->getNumElements() : cast<ArrayType>(value.getType())->getNumElements();
      // Vector elements are packed, array elements padded to their alignment.
      uint64_t bits = layout.getTypeSizeInBits(element).getFixedValue();
      if (vector && bits % 8) {
        complete = false;
        return;
      }
      uint64_t stride = vector ? bits / 8 : layout.getTypeAllocSize(element).getFixedValue();
      for (uint64_t i = 0; i < count; ++i)
        write(*value.getAggregateElement(unsigned(i)), offset + i * stride);
      return;
    }
    write_address(value, offset);
  }

  void write_address(const Constant &value, uint64_t offset) {
    const auto *address = &value;
    if (auto *space_cast = dyn_cast<PtrToIntOperator>(address))
      address = cast<Constant>(space_cast->getPointerOperand());
    if (address->getType()->isPointerTy()) {
      APInt addend(layout.getIndexTypeSizeInBits(address->getType()), 0);
      const auto *base = address->stripAndAccumulateConstantOffsets(layout, addend, /*AllowNonInbounds=*/true);
      while (auto *space = dyn_cast<AddrSpaceCastOperator>(base)) // global and generic addresses are the same
        base = space->getPointerOperand()->stripAndAccumulateConstantOffsets(layout, addend, true);
      if (auto *global = dyn_cast<GlobalValue>(base)) {
        pointers.push_back({offset, global->getName().str(), addend.getSExtValue()});
        return;
      }
    }
    complete = false;
  }
};

//===----------------------------------------------------------------------===//
// Variables that are only added to
//===----------------------------------------------------------------------===//

/// Return whether a value is a 32- or 64-bit integer and not an address.
bool is_summand(const Value &number) {
  return (number.getType()->isIntegerTy(32) || number.getType()->isIntegerTy(64)) && !isa<ConstantExpr>(number);
}

/// Return whether `place`, an operand, is the address of an atomic addition whose result is not used.
bool is_addition(const Use &place) {
  const User &by = *place.getUser();
  if (place.getOperandNo() != 0 || !by.use_empty()) // operand 0 is the pointer of both kinds
    return false;
  if (auto *atomic = dyn_cast<AtomicRMWInst>(&by))
    return atomic->getOperation() == AtomicRMWInst::Add && atomic->getOrdering() == AtomicOrdering::Monotonic &&
           !atomic->isVolatile() && is_summand(*atomic->getValOperand());
  auto *call = dyn_cast<CallInst>(&by);
  auto *callee = call ? call->getCalledFunction() : nullptr;
  return callee && callee->getName().take_front(sizeof(kAdditionPrefix) - 1) == kAdditionPrefix &&
         call->arg_size() == 2 && is_summand(*call->getArgOperand(1));
}

/// Return whether `by` is an unused constant, e.g. a part of the removed `llvm.used`.
bool is_left_over(const User &by) {
  auto *value = dyn_cast<Constant>(&by);
  return value && !isa<GlobalValue>(value) && !value->isConstantUsed();
}

/// Return whether code only adds to the value at `address`.
bool is_only_added_to(const Value &address) {
  return all_of(address.uses(), [](const Use &place) {
    const User &by = *place.getUser();
    if (is_left_over(by))
      return true;
    bool is_same_object = isa<AddrSpaceCastOperator>(by) || (isa<GEPOperator>(by) && place.getOperandNo() == 0);
    return is_same_object ? is_only_added_to(by) : is_addition(place);
  });
}

/// Return whether code only adds to the variable that `pointer`, the symbol of a managed variable, points to.
bool is_only_added_through(const GlobalVariable &pointer) {
  return all_of(pointer.users(), [](const User *by) {
    auto *load = dyn_cast<LoadInst>(by);
    return load ? load->isSimple() && load->getType()->isPointerTy() && is_only_added_to(*load) : is_left_over(*by);
  });
}

/// Return the debug-info type without typedefs and qualifiers.
const DIType *underlying(const DIType *type) {
  while (auto *derived = dyn_cast_or_null<DIDerivedType>(type)) {
    if (derived->getTag() != dwarf::DW_TAG_typedef && derived->getTag() != dwarf::DW_TAG_const_type &&
        derived->getTag() != dwarf::DW_TAG_volatile_type && derived->getTag() != dwarf::DW_TAG_restrict_type)
      break;
    type = derived->getBaseType();
  }
  return type;
}

/// Add a parameter's sign if it is known: from the ABI for small integers, from debug info for the others.
void add_sign(json::Object &entry, const Argument &parameter, const DIType *source) {
  if (!parameter.getType()->isIntegerTy())
    return;
  if (auto *basic = dyn_cast_or_null<DIBasicType>(underlying(source))) {
    if (auto sign = basic->getSignedness())
      entry["signed"] = *sign == DIBasicType::Signedness::Signed;
  } else if (parameter.hasSExtAttr() || parameter.hasZExtAttr()) {
    entry["signed"] = parameter.hasSExtAttr();
  }
}

} // namespace

Manifest::Manifest(Module &m) : m_(m), wave_size_(wave_size(m)) {
  for (const Function &f : m)
    if (Attribute cpu = f.getFnAttribute("target-cpu"); cpu.isValid()) {
      target_ = cpu.getValueAsString().str();
      break;
    }
}

void Manifest::add_hook(const AnnotatedFunction &hook) {
  const Function &f = *hook.function;
  const DISubprogram *program = f.getSubprogram();
  SmallVector<const DIType *, 8> types;
  SmallVector<StringRef, 8> names;
  if (program) {
    if (auto *signature = program->getType())
      for (unsigned i = 1; i < signature->getTypeArray().size(); ++i)
        types.push_back(signature->getTypeArray()[i]);
    names.resize(types.size());
    for (const DINode *node : program->getRetainedNodes())
      if (auto *variable = dyn_cast<DILocalVariable>(node);
          variable && variable->getArg() && variable->getArg() <= names.size())
        names[variable->getArg() - 1] = variable->getName();
  }
  // Where a parameter takes several IR arguments or none, debug info cannot be matched to them.
  bool matched = types.size() == f.arg_size();

  json::Array parameters;
  for (const Argument &parameter : f.args()) {
    json::Object entry{{"type", spelling(*parameter.getType())}};
    const DIType *source = matched ? types[parameter.getArgNo()] : nullptr;
    add_sign(entry, parameter, source);
    if (matched && !names[parameter.getArgNo()].empty())
      entry["name"] = names[parameter.getArgNo()].str();
    if (Type *pointee = parameter.getParamByValType())
      entry["byval"] = spelling(*pointee);
    parameters.push_back(std::move(entry));
  }
  json::Object entry{
      {"name", f.getName().str()}, {"source", demangle(f.getName().str())}, {"parameters", std::move(parameters)}};
  if (program && program->getLine()) {
    entry["file"] = program->getFilename().str();
    entry["line"] = program->getLine();
  } else if (!hook.file.empty()) {
    entry["file"] = hook.file;
    entry["line"] = hook.line;
  }
  hooks_.push_back(std::move(entry));
}

void Manifest::add_intrinsic(StringRef name, StringRef source) { intrinsics_[name.str()].push_back(source.str()); }

void Manifest::add_variable(const GlobalVariable &variable, const GlobalVariable &storage) {
  const DataLayout &layout = m_.getDataLayout();
  Type *value_type = storage.getValueType();
  json::Object entry{
      {"name", variable.getName().str()},
      {"type", spelling(*value_type)},
      {"size", int64_t(layout.getTypeAllocSize(value_type).getFixedValue())},
      {"align", int64_t(storage.getPointerAlignment(layout).value())},
      {"address_space", variable.getAddressSpace()},
  };
  if (&variable != &storage)
    entry["managed"] = true;
  if (variable.isConstant() || variable.getAddressSpace() == kConstantAddressSpace)
    entry["constant"] = true; // clang 15 marks __constant__ only by address space
  else if (&variable == &storage ? is_only_added_to(variable) : is_only_added_through(variable))
    entry["only_added"] = true;
  if (variable.hasLocalLinkage())
    entry["local"] = true;
  if (storage.hasInitializer()) {
    InitialValue initial(*storage.getInitializer(), layout);
    if (!initial.is_zero())
      entry["bytes"] = encodeBase64(initial.bytes);
    json::Array pointers;
    for (const Pointer &pointer : initial.pointers)
      pointers.push_back(json::Array{int64_t(pointer.offset), pointer.symbol, pointer.addend});
    if (!pointers.empty())
      entry["pointers"] = std::move(pointers);
    if (!initial.complete)
      entry["incomplete"] = true;
  } else {
    entry["undefined"] = true;
  }
  variables_.push_back(std::move(entry));
}

void Manifest::add_alias(StringRef name, StringRef aliasee, int64_t offset) {
  aliases_.push_back(json::Object{{"name", name.str()}, {"of", aliasee.str()}, {"offset", offset}});
}

void Manifest::write(const WaveVariant &variant) {
  json::Array intrinsic_list;
  for (auto &[name, sources] : intrinsics_)
    intrinsic_list.push_back(json::Object{{"name", name}, {"sources", std::move(sources)}});
  std::string cuid;
  for (const GlobalVariable &global : m_.globals())
    if (global.getName().take_front(sizeof(kCuidPrefix) - 1) == kCuidPrefix)
      cuid = global.getName().drop_front(sizeof(kCuidPrefix) - 1).str();

  // The first key and its place are part of the format: readers find the text in the bitcode by them.
  std::string text = "{\"luthier\":" + std::to_string(kFormatVersion);
  raw_string_ostream stream(text);
  auto member = [&](StringRef key, const json::Value &value) { stream << ",\"" << key << "\":" << value; };
  if (!variant.bitcode.empty()) // right behind the version, where readers look for it before they trust the rest
    member("follows", int64_t(variant.bitcode.size()));
  member("llvm", LLVM_VERSION_STRING);
  member("source", m_.getSourceFileName());
  member("target", target_);
  member("wave_size", wave_size_);
  if (!variant.problem.empty())
    member("one_wave_size", json::fixUTF8(variant.problem));
  member("cuid", cuid);
  member("hooks", std::move(hooks_));
  member("intrinsics", std::move(intrinsic_list));
  member("variables", std::move(variables_));
  member("aliases", std::move(aliases_));
  member("sha256", kDigestPlaceholder);
  stream << '}';
  LLVMContext &context = m_.getContext();
  m_.getOrInsertNamedMetadata("luthier.manifest")
      ->addOperand(MDNode::get(context, {MDString::get(context, stream.str())}));
}

void seal_manifest(std::string &bitcode) {
  const size_t place = bitcode.find(kDigestPlaceholder.str(), bitcode.find("{\"luthier\":"));
  if (place == std::string::npos)
    return;
  const auto digest =
      SHA256::hash(ArrayRef<uint8_t>(reinterpret_cast<const uint8_t *>(bitcode.data()), bitcode.size()));
  bitcode.replace(place, kDigestPlaceholder.size(), toHex(digest, /*LowerCase=*/true));
}

} // namespace luthier
