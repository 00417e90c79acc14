//===- Plugin.cpp - the pass plugin clang loads ---------------------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// clang++ -x hip -Xarch_device -fpass-plugin=libluthier.so: the last step of the device optimizer clones a Luthier
// device module, prepares the clone for instrumentation and embeds it as bitcode. Every other module passes through
// untouched.
//
//===----------------------------------------------------------------------===//
#include "DeviceModule.h"

#include "Compat.h"
#include "Manifest.h"

#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

using namespace llvm;

namespace {

constexpr char kBitcodeSection[] = ".llvmbc";

/// Return whether clang was given -fgpu-rdc. Its driver gives every other compilation of HIP this backend option, in
/// all releases seen so far; with later ones the check in luthier.h must do.
bool is_relocatable_device_code() {
  if (LLVM_VERSION_MAJOR > 22)
    return false;
  auto &options = cl::getRegisteredOptions();
  auto option = options.find("amdgpu-internalize-symbols");
  return option != options.end() && option->second->getNumOccurrences() == 0;
}

bool carries_bitcode(const Module &m) {
  return any_of(m.globals(), [](const GlobalVariable &global) { return global.getSection() == kBitcodeSection; });
}

/// Put bitcode, that of the other wave size after the module's, into a section that no loader maps: `.llvmbc` is not
/// allocated, and survives the link.
void embed(Module &m, StringRef bitcode) {
  Constant *data = ConstantDataArray::getString(m.getContext(), bitcode, /*AddNull=*/false);
  auto *global = new GlobalVariable(m, data->getType(), /*isConstant=*/true, GlobalValue::PrivateLinkage, data,
                                    "luthier.embedded.bitcode");
  global->setSection(kBitcodeSection);
  global->setAlignment(Align(1));
  appendToCompilerUsed(m, {global});
}

class EmbedDeviceModulePass : public PassInfoMixin<EmbedDeviceModulePass> {
public:
  PreservedAnalyses run(Module &m, ModuleAnalysisManager &) {
    if (!luthier::is_luthier_device_module(m)) {
      luthier::warn_of_lost_hooks(m);
      return PreservedAnalyses::all();
    }
    if (carries_bitcode(m)) {
      luthier::report_error(m,
                            "this Luthier device module already carries embedded bitcode in section '.llvmbc': is the "
                            "Luthier plugin loaded twice, or -fembed-bitcode given?");
      return PreservedAnalyses::all();
    }
    if (is_relocatable_device_code()) {
      luthier::report_error(m,
                            "a Luthier device module cannot be compiled with -fgpu-rdc: device code is then generated "
                            "at link time, where the module's IR can no longer be embedded");
      return PreservedAnalyses::all();
    }
    const std::optional<int> output = luthier::wave_variant_output();
    const luthier::WaveVariant variant = output ? luthier::WaveVariant() : luthier::compile_wave_variant(m);
    if (!variant.problem.empty())
      luthier::report_warning(m, "no hooks for kernels of " + Twine(96 - luthier::wave_size(m)) +
                                     " lanes a wave (LUTHIER_ONE_WAVE_SIZE: none wanted): " + variant.problem);
    std::unique_ptr<Module> clone = CloneModule(m);
    if (!luthier::prepare_device_module(*clone, variant))
      return PreservedAnalyses::all(); // reported; the compilation fails
    std::string bitcode;
    raw_string_ostream stream(bitcode);
    WriteBitcodeToFile(*clone, stream);
    stream.flush();
    luthier::seal_manifest(bitcode);
    if (!output)
      embed(m, bitcode + variant.bitcode);
    else if (!luthier::write_wave_variant(*output, bitcode))
      luthier::report_error(m, "cannot hand over the bitcode for the other wave size");
    return PreservedAnalyses::none();
  }

  static bool isRequired() { return true; } // also where optnone or an opt-bisect limit skips passes
};

/// For tests of the transformation itself: turns the module into its clone, bitcode left out.
class PrepareDeviceModulePass : public PassInfoMixin<PrepareDeviceModulePass> {
public:
  PreservedAnalyses run(Module &m, ModuleAnalysisManager &) {
    if (!luthier::is_luthier_device_module(m))
      return PreservedAnalyses::all();
    luthier::prepare_device_module(m, {});
    return PreservedAnalyses::none();
  }

  static bool isRequired() { return true; }
};

void register_passes(PassBuilder &builder) {
  luthier::compat::add_optimizer_last_pass(builder, EmbedDeviceModulePass());
  builder.registerPipelineParsingCallback(
      [](StringRef name, ModulePassManager &passes, ArrayRef<PassBuilder::PipelineElement>) {
        if (name == "luthier-embed")
          passes.addPass(EmbedDeviceModulePass());
        else if (name == "luthier-prepare")
          passes.addPass(PrepareDeviceModulePass());
        else
          return false;
        return true;
      });
}

} // namespace

extern "C" PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "luthier", LLVM_VERSION_STRING, register_passes};
}
