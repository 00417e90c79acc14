//===- WaveVariant.cpp - the module compiled for the other wave size ------===//
//
// Part of Luthier, under the Apache License v2.0.
//
//===----------------------------------------------------------------------===//
#include "WaveVariant.h"

#include "DeviceModule.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/GlobalVariable.h>

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace llvm;

namespace luthier {

namespace {

/// Environment variable with the file descriptor that a compilation for the other wave size writes its bitcode to.
constexpr char OutputVariable[] = "LUTHIER_WAVE_VARIANT_OUTPUT";
/// HIP's headers before release 7 size their masks by this macro, which not every clang defines.
constexpr char SizeMacro[] = "__AMDGCN_WAVEFRONT_SIZE";

/// Return what a function was compiled for, from the first that has the attribute.
StringRef attributeOf(const Module &M, StringRef Name) {
  for (const Function &F : M)
    if (Attribute Found = F.getFnAttribute(Name); Found.isValid())
      return Found.getValueAsString();
  return "";
}

bool startsWith(StringRef Text, StringRef Start) { return Text.take_front(Start.size()) == Start; }
bool endsWith(StringRef Text, StringRef End) { return Text.take_back(End.size()) == End; }

bool isGfx10(StringRef Processor) { return startsWith(Processor, "gfx10"); }

/// Return whether the processor, generic or not, runs waves of both sizes.
bool hasBothWaveSizes(StringRef Processor) {
  return isGfx10(Processor) || startsWith(Processor, "gfx11") ||
         (startsWith(Processor, "gfx12") && !startsWith(Processor, "gfx125") && !startsWith(Processor, "gfx12-5"));
}

/// Return whether the author asked for one wave size, by LUTHIER_ONE_WAVE_SIZE (luthier.h).
bool wantsOneWaveSize(const Module &M) {
  const GlobalVariable *Reserved =
      M.getGlobalVariable((StringRef(ReservedVariable) + ManagedSuffix).str(), /*AllowInternal=*/true);
  if (!Reserved || !Reserved->hasInitializer())
    Reserved = M.getGlobalVariable(ReservedVariable, /*AllowInternal=*/true);
  auto *Value = Reserved && Reserved->hasInitializer() ? dyn_cast<ConstantInt>(Reserved->getInitializer()) : nullptr;
  return Value && !Value->isZero();
}

/// A file in memory, which the other process inherits.
class MemoryFile {
public:
  MemoryFile() : Descriptor(memfd_create("luthier", 0)) {}
  ~MemoryFile() {
    if (Descriptor >= 0)
      close(Descriptor);
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;

  std::string contents() const {
    std::string Text;
    char Buffer[1 << 16];
    lseek(Descriptor, 0, SEEK_SET);
    for (ssize_t Count; (Count = read(Descriptor, Buffer, sizeof(Buffer))) > 0;)
      Text.append(Buffer, size_t(Count));
    return Text;
  }

  const int Descriptor;
};

/// The arguments of this process.
std::vector<std::string> ownArguments() {
  std::ifstream File("/proc/self/cmdline", std::ios::binary);
  std::string Text((std::istreambuf_iterator<char>(File)), std::istreambuf_iterator<char>());
  std::vector<std::string> Arguments;
  for (size_t Start = 0, End; (End = Text.find('\0', Start)) != std::string::npos; Start = End + 1)
    Arguments.push_back(Text.substr(Start, End - Start));
  return Arguments;
}

/// Return why the source cannot be compiled again by these arguments of clang's frontend; empty where it can.
std::string whyNotAgain(const std::vector<std::string> &Arguments) {
  if (Arguments.size() < 2 || Arguments[1] != "-cc1")
    return "this is no process of clang's frontend alone (-fno-integrated-cc1 makes it one)";
  if (any_of(Arguments, [](const std::string &Argument) { return Argument[0] == '@'; }))
    return "the compiler's arguments are in a file";
  if (Arguments.back() == "-")
    return "the source is read from standard input";
  for (size_t I = 0; I + 1 < Arguments.size(); ++I)
    if (Arguments[I] == "-x" && Arguments[I + 1] != "hip")
      return "the source is no longer HIP but " + Arguments[I + 1] + " (-save-temps, or a compiler cache)";
  return "";
}

/// The arguments for the same without any output.
std::vector<std::string> argumentsFor(const std::vector<std::string> &Own, unsigned WaveSize, StringRef Processor) {
  static const StringRef WithValue[] = {"-o",
                                        "-dependency-file",
                                        "-include-pch", // of headers as the other size sees them
                                        "-MT",
                                        "-MQ",
                                        "-serialize-diagnostic-file",
                                        "-opt-record-file",
                                        "-header-include-file",
                                        "-diagnostic-log-file"};
  static const StringRef Alone[] = {"-stats-file=", "-ftime-trace", "-emit-obj", "-emit-llvm-bc", "-emit-llvm", "-S"};
  const std::string Libraries[] = {"oclc_wavefrontsize64_off.bc", "oclc_wavefrontsize64_on.bc"};
  std::vector<std::string> Result;
  bool SetsMacro = false;
  for (size_t I = 0; I < Own.size(); ++I) {
    StringRef Argument = Own[I];
    if (any_of(WithValue, [&](StringRef Name) { return Argument == Name; })) {
      ++I;
      continue;
    }
    if (any_of(Alone, [&](StringRef Start) { return startsWith(Argument, Start); }))
      continue;
    if (Argument == "-target-feature" && I + 1 < Own.size() &&
        StringRef(Own[I + 1]).find("wavefrontsize") != StringRef::npos) {
      ++I;
      continue;
    }
    SetsMacro |= startsWith(Argument, (StringRef(SizeMacro) + "=").str());
    for (const std::string &Library : Libraries)
      if (endsWith(Argument, Library))
        Argument = Argument.drop_back(Library.size());
    Result.push_back(Argument.str());
    if (Argument.size() != Own[I].size())
      Result.back() += Libraries[WaveSize == 64];
  }
  std::string Source = std::move(Result.back()); // stays the last one
  Result.pop_back();
  auto Add = [&](std::initializer_list<std::string> More) { Result.insert(Result.end(), More); };
  Add({"-target-feature", "+wavefrontsize" + std::to_string(WaveSize), "-emit-llvm-only", "-w"});
  if (SetsMacro)
    Add({std::string("-U") + SizeMacro, std::string("-D") + SizeMacro + "=" + std::to_string(WaveSize)});
  if (WaveSize == 64 && isGfx10(Processor))
    Add({"-include", "luthier/support/wave64_on_gfx10.h"});
  Result.push_back(std::move(Source));
  return Result;
}

/// Runs this program with other arguments; returns what `waitpid` says of it, or -1.
int runAgain(const std::vector<std::string> &Arguments, const MemoryFile &Output, const MemoryFile &Errors) {
  std::vector<char *> Words, Environment;
  for (const std::string &Argument : Arguments)
    Words.push_back(const_cast<char *>(Argument.c_str()));
  Words.push_back(nullptr);
  std::string Setting = std::string(OutputVariable) + "=" + std::to_string(Output.Descriptor);
  for (char **Entry = environ; *Entry; ++Entry)
    Environment.push_back(*Entry);
  Environment.push_back(Setting.data());
  Environment.push_back(nullptr);

  posix_spawn_file_actions_t Actions;
  posix_spawn_file_actions_init(&Actions);
  posix_spawn_file_actions_addopen(&Actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&Actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&Actions, Errors.Descriptor, STDERR_FILENO);
  pid_t Child = 0;
  int Failed = posix_spawn(&Child, "/proc/self/exe", &Actions, nullptr, Words.data(), Environment.data());
  posix_spawn_file_actions_destroy(&Actions);
  if (Failed)
    return -1;
  int Status = 0;
  while (waitpid(Child, &Status, 0) < 0)
    if (errno != EINTR)
      return -1;
  return Status;
}

/// The first error in a compiler's messages.
std::string firstError(StringRef Messages) {
  size_t At = Messages.find("error: ");
  if (At == StringRef::npos)
    return "the compiler ended without a message";
  size_t Start = Messages.take_front(At).rfind('\n');
  return Messages.drop_front(Start == StringRef::npos ? 0 : Start + 1).split('\n').first.str();
}

} // namespace

unsigned waveSize(const Module &M) {
  if (!hasBothWaveSizes(attributeOf(M, "target-cpu")))
    return startsWith(attributeOf(M, "target-cpu"), "gfx12") ? 32 : 64;
  return attributeOf(M, "target-features").find("+wavefrontsize64") == StringRef::npos ? 32 : 64;
}

WaveVariant compileWaveVariant(const Module &M) {
  StringRef Processor = attributeOf(M, "target-cpu");
  if (!hasBothWaveSizes(Processor) || wantsOneWaveSize(M))
    return {};
  const std::vector<std::string> Own = ownArguments();
  if (std::string Problem = whyNotAgain(Own); !Problem.empty())
    return {"", Problem};
  MemoryFile Output, Errors;
  if (Output.Descriptor < 0 || Errors.Descriptor < 0)
    return {"", "no file in memory can be made"};
  int Status = runAgain(argumentsFor(Own, 96 - waveSize(M), Processor), Output, Errors);
  std::string Bitcode = Output.contents();
  if (Status != 0 || Bitcode.empty())
    return {"", firstError(Errors.contents())};
  return {std::move(Bitcode), ""};
}

std::optional<int> waveVariantOutput() {
  const char *Text = std::getenv(OutputVariable);
  char *End = nullptr;
  long Descriptor = Text ? std::strtol(Text, &End, 10) : -1;
  return Descriptor > 2 && *End == '\0' ? std::optional<int>(int(Descriptor)) : std::nullopt;
}

bool writeWaveVariant(int Output, StringRef Bitcode) {
  while (!Bitcode.empty()) {
    ssize_t Count = write(Output, Bitcode.data(), Bitcode.size());
    if (Count < 0)
      return false;
    Bitcode = Bitcode.drop_front(size_t(Count));
  }
  return true;
}

} // namespace luthier
