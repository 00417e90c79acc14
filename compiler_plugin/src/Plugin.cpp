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

constexpr char BitcodeSection[] = ".llvmbc";

/// Return whether clang was given -fgpu-rdc. Its driver gives every other compilation of HIP this backend option, in
/// all releases seen so far; with later ones the check in luthier.h must do.
bool isRelocatableDeviceCode() {
  if (LLVM_VERSION_MAJOR > 22)
    return false;
  auto &Options = cl::getRegisteredOptions();
  auto Found = Options.find("amdgpu-internalize-symbols");
  return Found != Options.end() && Found->second->getNumOccurrences() == 0;
}

bool carriesBitcode(const Module &M) {
  return any_of(M.globals(), [](const GlobalVariable &Global) { return Global.getSection() == BitcodeSection; });
}

/// Put bitcode, that of the other wave size after the module's, into a section that no loader maps: `.llvmbc` is not
/// allocated, and survives the link.
void embed(Module &M, StringRef Bitcode) {
  Constant *Data = ConstantDataArray::getString(M.getContext(), Bitcode, /*AddNull=*/false);
  auto *Global = new GlobalVariable(M, Data->getType(), /*isConstant=*/true, GlobalValue::PrivateLinkage, Data,
                                    "luthier.embedded.bitcode");
  Global->setSection(BitcodeSection);
  Global->setAlignment(Align(1));
  appendToCompilerUsed(M, {Global});
}

class EmbedDeviceModulePass : public PassInfoMixin<EmbedDeviceModulePass> {
public:
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    if (!luthier::isLuthierDeviceModule(M)) {
      luthier::warnOfLostHooks(M);
      return PreservedAnalyses::all();
    }
    if (carriesBitcode(M)) {
      luthier::reportError(M,
                           "this Luthier device module already carries embedded bitcode in section '.llvmbc': is the "
                           "Luthier plugin loaded twice, or -fembed-bitcode given?");
      return PreservedAnalyses::all();
    }
    if (isRelocatableDeviceCode()) {
      luthier::reportError(M,
                           "a Luthier device module cannot be compiled with -fgpu-rdc: device code is then generated "
                           "at link time, where the module's IR can no longer be embedded");
      return PreservedAnalyses::all();
    }
    const std::optional<int> Output = luthier::waveVariantOutput();
    const luthier::WaveVariant Variant = Output ? luthier::WaveVariant() : luthier::compileWaveVariant(M);
    if (!Variant.Problem.empty())
      luthier::reportWarning(M, "no hooks for kernels of " + Twine(96 - luthier::waveSize(M)) +
                                    " lanes a wave (LUTHIER_ONE_WAVE_SIZE: none wanted): " + Variant.Problem);
    std::unique_ptr<Module> Clone = CloneModule(M);
    if (!luthier::prepareDeviceModule(*Clone, Variant))
      return PreservedAnalyses::all(); // reported; the compilation fails
    std::string Bitcode;
    raw_string_ostream Stream(Bitcode);
    WriteBitcodeToFile(*Clone, Stream);
    Stream.flush();
    luthier::sealManifest(Bitcode);
    if (!Output)
      embed(M, Bitcode + Variant.Bitcode);
    else if (!luthier::writeWaveVariant(*Output, Bitcode))
      luthier::reportError(M, "cannot hand over the bitcode for the other wave size");
    return PreservedAnalyses::none();
  }

  static bool isRequired() { return true; } // also where optnone or an opt-bisect limit skips passes
};

/// For tests of the transformation itself: turns the module into its clone, bitcode left out.
class PrepareDeviceModulePass : public PassInfoMixin<PrepareDeviceModulePass> {
public:
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    if (!luthier::isLuthierDeviceModule(M))
      return PreservedAnalyses::all();
    luthier::prepareDeviceModule(M, {});
    return PreservedAnalyses::none();
  }

  static bool isRequired() { return true; }
};

void registerPasses(PassBuilder &Builder) {
  luthier::compat::addOptimizerLastPass(Builder, EmbedDeviceModulePass());
  Builder.registerPipelineParsingCallback(
      [](StringRef Name, ModulePassManager &Passes, ArrayRef<PassBuilder::PipelineElement>) {
        if (Name == "luthier-embed")
          Passes.addPass(EmbedDeviceModulePass());
        else if (Name == "luthier-prepare")
          Passes.addPass(PrepareDeviceModulePass());
        else
          return false;
        return true;
      });
}

} // namespace

extern "C" PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "luthier", LLVM_VERSION_STRING, registerPasses};
}
