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
constexpr char kOutputVariable[] = "LUTHIER_WAVE_VARIANT_OUTPUT";
/// HIP's headers before release 7 size their masks by this macro, which not every clang defines.
constexpr char kSizeMacro[] = "__AMDGCN_WAVEFRONT_SIZE";

/// Return the value of an attribute, from the first function that has it.
StringRef attribute_of(const Module &m, StringRef name) {
  for (const Function &f : m)
    if (Attribute attribute = f.getFnAttribute(name); attribute.isValid())
      return attribute.getValueAsString();
  return "";
}

bool starts_with(StringRef text, StringRef start) { return text.take_front(start.size()) == start; }
bool ends_with(StringRef text, StringRef end) { return text.take_back(end.size()) == end; }

bool is_gfx10(StringRef processor) { return starts_with(processor, "gfx10"); }

/// Return whether the processor, generic or not, runs waves of both sizes.
bool has_both_wave_sizes(StringRef processor) {
  return is_gfx10(processor) || starts_with(processor, "gfx11") ||
         (starts_with(processor, "gfx12") && !starts_with(processor, "gfx125") && !starts_with(processor, "gfx12-5"));
}

/// Return whether the author asked for one wave size, by LUTHIER_ONE_WAVE_SIZE (luthier.h).
bool wants_one_wave_size(const Module &m) {
  const GlobalVariable *reserved =
      m.getGlobalVariable((StringRef(kReservedVariable) + kManagedSuffix).str(), /*AllowInternal=*/true);
  if (!reserved || !reserved->hasInitializer())
    reserved = m.getGlobalVariable(kReservedVariable, /*AllowInternal=*/true);
  auto *value = reserved && reserved->hasInitializer() ? dyn_cast<ConstantInt>(reserved->getInitializer()) : nullptr;
  return value && !value->isZero();
}

/// A file in memory that the other process inherits.
class MemoryFile {
public:
  MemoryFile() : descriptor(memfd_create("luthier", 0)) {}
  ~MemoryFile() {
    if (descriptor >= 0)
      close(descriptor);
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;

  std::string contents() const {
    std::string text;
    char buffer[1 << 16];
    lseek(descriptor, 0, SEEK_SET);
    for (ssize_t count; (count = read(descriptor, buffer, sizeof(buffer))) > 0;)
      text.append(buffer, size_t(count));
    return text;
  }

  const int descriptor;
};

/// Return the arguments of this process.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> arguments;
  for (size_t start = 0, end; (end = text.find('\0', start)) != std::string::npos; start = end + 1)
    arguments.push_back(text.substr(start, end - start));
  return arguments;
}

/// Return why the source cannot be compiled again with these arguments of clang's frontend; empty if it can.
std::string why_not_again(const std::vector<std::string> &arguments) {
  if (arguments.size() < 2 || arguments[1] != "-cc1")
    return "this is no process of clang's frontend alone (-fno-integrated-cc1 makes it one)";
  if (any_of(arguments, [](const std::string &argument) { return argument[0] == '@'; }))
    return "the compiler's arguments are in a file";
  if (arguments.back() == "-")
    return "the source is read from standard input";
  for (size_t i = 0; i + 1 < arguments.size(); ++i)
    if (arguments[i] == "-x" && arguments[i + 1] != "hip")
      return "the source is no longer HIP but " + arguments[i + 1] + " (-save-temps, or a compiler cache)";
  return "";
}

/// Return the arguments for the same compilation without any output.
std::vector<std::string> arguments_for(const std::vector<std::string> &own, unsigned wave_size, StringRef processor) {
  static const StringRef with_value[] = {"-o",
                                         "-dependency-file",
                                         "-include-pch", // of headers as the other size sees them
                                         "-MT",
                                         "-MQ",
                                         "-serialize-diagnostic-file",
                                         "-opt-record-file",
                                         "-header-include-file",
                                         "-diagnostic-log-file"};
  static const StringRef alone[] = {"-stats-file=", "-ftime-trace", "-emit-obj", "-emit-llvm-bc", "-emit-llvm", "-S"};
  const std::string libraries[] = {"oclc_wavefrontsize64_off.bc", "oclc_wavefrontsize64_on.bc"};
  std::vector<std::string> result;
  bool sets_macro = false;
  for (size_t i = 0; i < own.size(); ++i) {
    StringRef argument = own[i];
    if (any_of(with_value, [&](StringRef name) { return argument == name; })) {
      ++i;
      continue;
    }
    if (any_of(alone, [&](StringRef start) { return starts_with(argument, start); }))
      continue;
    if (argument == "-target-feature" && i + 1 < own.size() &&
        StringRef(own[i + 1]).find("wavefrontsize") != StringRef::npos) {
      ++i;
      continue;
    }
    sets_macro |= starts_with(argument, (StringRef(kSizeMacro) + "=").str());
    for (const std::string &library : libraries)
      if (ends_with(argument, library))
        argument = argument.drop_back(library.size());
    result.push_back(argument.str());
    if (argument.size() != own[i].size())
      result.back() += libraries[wave_size == 64];
  }
  std::string source = std::move(result.back()); // stays the last one
  result.pop_back();
  auto add = [&](std::initializer_list<std::string> more) { result.insert(result.end(), more); };
  add({"-target-feature", "+wavefrontsize" + std::to_string(wave_size), "-emit-llvm-only", "-w"});
  if (sets_macro)
    add({std::string("-U") + kSizeMacro, std::string("-D") + kSizeMacro + "=" + std::to_string(wave_size)});
  if (wave_size == 64 && is_gfx10(processor))
    add({"-include", "luthier/support/wave64_on_gfx10.h"});
  result.push_back(std::move(source));
  return result;
}

/// Run this program with other arguments; return the status from `waitpid`, or -1.
int run_again(const std::vector<std::string> &arguments, const MemoryFile &output, const MemoryFile &errors) {
  std::vector<char *> words, environment;
  for (const std::string &argument : arguments)
    words.push_back(const_cast<char *>(argument.c_str()));
  words.push_back(nullptr);
  std::string setting = std::string(kOutputVariable) + "=" + std::to_string(output.descriptor);
  for (char **entry = environ; *entry; ++entry)
    environment.push_back(*entry);
  environment.push_back(setting.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errors.descriptor, STDERR_FILENO);
  pid_t child = 0;
  int failed = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, words.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed)
    return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return -1;
  return status;
}

/// Return the first error in a compiler's messages.
std::string first_error(StringRef messages) {
  size_t at = messages.find("error: ");
  if (at == StringRef::npos)
    return "the compiler ended without a message";
  size_t start = messages.take_front(at).rfind('\n');
  return messages.drop_front(start == StringRef::npos ? 0 : start + 1).split('\n').first.str();
}

} // namespace

unsigned wave_size(const Module &m) {
  if (!has_both_wave_sizes(attribute_of(m, "target-cpu")))
    return starts_with(attribute_of(m, "target-cpu"), "gfx12") ? 32 : 64;
  return attribute_of(m, "target-features").find("+wavefrontsize64") == StringRef::npos ? 32 : 64;
}

WaveVariant compile_wave_variant(const Module &m) {
  StringRef processor = attribute_of(m, "target-cpu");
  if (!has_both_wave_sizes(processor) || wants_one_wave_size(m))
    return {};
  const std::vector<std::string> own = own_arguments();
  if (std::string problem = why_not_again(own); !problem.empty())
    return {"", problem};
  MemoryFile output, errors;
  if (output.descriptor < 0 || errors.descriptor < 0)
    return {"", "no file in memory can be made"};
  int status = run_again(arguments_for(own, 96 - wave_size(m), processor), output, errors);
  std::string bitcode = output.contents();
  if (status != 0 || bitcode.empty())
    return {"", first_error(errors.contents())};
  return {std::move(bitcode), ""};
}

std::optional<int> wave_variant_output() {
  const char *text = std::getenv(kOutputVariable);
  char *end = nullptr;
  long descriptor = text ? std::strtol(text, &end, 10) : -1;
  return descriptor > 2 && *end == '\0' ? std::optional<int>(int(descriptor)) : std::nullopt;
}

bool write_wave_variant(int output, StringRef bitcode) {
  while (!bitcode.empty()) {
    ssize_t count = write(output, bitcode.data(), bitcode.size());
    if (count < 0)
      return false;
    bitcode = bitcode.drop_front(size_t(count));
  }
  return true;
}

} // namespace luthier
