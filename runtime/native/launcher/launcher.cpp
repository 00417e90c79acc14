//===- launcher.cpp - luthier-cc and luthier-hipcc without Python ---------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// Finds out whether a compile command generates device code, puts Luthier's flags before its arguments, and becomes the
// compiler. What needs a decision is left to luthier_build/wrapper.py (`luthier-wrapper`, beside this program): a
// compiler seen for the first time, options of Luthier's own, a hipcc that may be Luthier's. Python gets the
// verdict on the command:
//
//     luthier-wrapper (cc | hipcc) INDEX CLANG HIPCC ARGUMENT...
//
// INDEX is that of the compiler among the arguments without Luthier's options (0 for hipcc, whose compiler Python
// finds). CLANG and HIPCC are the verdicts for a compiler that takes C++ sources for C++, and for HIP.
//
// Built twice, with LUTHIER_HIPCC 0 and 1.
//
//===----------------------------------------------------------------------===//
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iconv.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "wrapper_tables.h"

using std::string;
using std::string_view;

extern char **environ;

namespace {

using Words = std::vector<string>;

constexpr bool kIsHipcc = LUTHIER_HIPCC;
constexpr const char *kName = kIsHipcc ? "luthier-hipcc" : "luthier-cc";

template <size_t Size> bool is_one_of(string_view word, const string_view (&table)[Size]) {
  return std::find(table, table + Size, word) != table + Size;
}

bool starts_with(string_view text, string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

string_view base_name(string_view path) { return path.substr(path.rfind('/') + 1); }

/// As Python's os.path.splitext: leading dots of a file name begin no suffix.
string_view suffix_of(string_view path) {
  string_view name = base_name(path);
  size_t start = name.find_first_not_of('.'), dot = name.rfind('.');
  return start == string_view::npos || dot == string_view::npos || dot < start ? string_view() : name.substr(dot);
}

/// Read a file; return false if that fails.
bool read_file(const string &path, string &text) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char buffer[16384];
  ssize_t count = -1;
  while (file >= 0 && (count = read(file, buffer, sizeof buffer)) > 0)
    text.append(buffer, count);
  if (file >= 0)
    close(file);
  return count == 0;
}

/// Convert UTF-16 with a byte order mark to UTF-8; return false if it is malformed.
bool convert_utf16(string &text) {
  string converted(text.size() * 2, '\0'); // 3 bytes at most for 2
  char *from = text.data(), *to = converted.data();
  size_t left = text.size(), room = converted.size();
  iconv_t converter = iconv_open("UTF-8", "UTF-16");
  if (converter == iconv_t(-1))
    return false;
  bool succeeded = iconv(converter, &from, &left, &to, &room) != size_t(-1);
  iconv_close(converter);
  text.assign(converted.data(), to);
  return succeeded;
}

bool read_response(const string &path, const struct stat &state, string &text) {
  if (!S_ISREG(state.st_mode) && !S_ISDIR(state.st_mode)) {
    fprintf(stderr,
            "%s: error: @%s is not a regular file, so the compiler could not read it again: write it to a file\n",
            kName, path.c_str());
    _exit(1);
  }
  if (!read_file(path, text))
    return false;
  if (starts_with(text, "\xff\xfe") || starts_with(text, "\xfe\xff"))
    return convert_utf16(text);
  if (starts_with(text, "\xef\xbb\xbf"))
    text.erase(0, 3);
  return true;
}

/// Split the text of a response file as LLVM does: a backslash escapes any character, also in both kinds of quotes, and
/// a quote that is not closed ends with the file.
Words split_response(string_view text) {
  Words words;
  bool in_word = false;
  char quote = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    char letter = text[at];
    if (!quote && string_view(" \t\r\n").find(letter) != string_view::npos) {
      in_word = false;
      continue;
    }
    if (!in_word)
      words.emplace_back();
    in_word = true;
    if (letter == '\\')
      words.back() += at + 1 < text.size() ? text[++at] : letter;
    else if (letter == quote)
      quote = 0;
    else if (!quote && (letter == '\'' || letter == '"'))
      quote = letter;
    else
      words.back() += letter;
  }
  return words;
}

/// Append the arguments as clang sees them: response files (`@file`) are read, except those that cannot be read and
/// those that they are `within`. Stop after -cc1, of which no more is wanted.
void expand(const Words &arguments, std::vector<std::pair<dev_t, ino_t>> &within, Words &words) {
  for (const string &argument : arguments) {
    if (!words.empty() && starts_with(words[0], "-cc1"))
      return;
    struct stat state;
    string path = argument.substr(argument.empty() ? 0 : 1), text;
    bool is_file = starts_with(argument, "@") && !stat(path.c_str(), &state);
    if (!is_file || std::count(within.begin(), within.end(), std::pair(state.st_dev, state.st_ino)) ||
        !read_response(path, state, text)) {
      words.push_back(argument);
      continue;
    }
    within.emplace_back(state.st_dev, state.st_ino);
    expand(split_response(text), within, words);
    within.pop_back();
  }
}

/// What a compile command does: `kReads` if it reads HIP sources, which want the device headers, without generating
/// device code.
enum Verdict { kNothing, kReads, kGenerates };
constexpr const char *kVerdicts[] = {"nothing", "reads", "generates"};

/// Return the verdict on the arguments of a compiler that takes C++ sources for C++ or, as hipcc does, for HIP.
Verdict analyse(const Words &words, bool for_hipcc) {
  auto is_hip = [&](string_view suffix) {
    return for_hipcc ? is_one_of(suffix, HipccSuffixes) : is_one_of(suffix, HipSuffixes);
  };
  string_view language;
  bool found_hip = false, only_files = false, no_code = false, host_only = false, asks = false;
  if (!words.empty() && starts_with(words[0], "-cc1"))
    return kNothing; // not the driver
  for (auto next = words.begin(), end = words.end(); next != end; ++next) {
    string_view word = *next;
    if (only_files || !starts_with(word, "-") || word == "-") {
      bool by_suffix = (language.empty() || language == "none") && is_hip(suffix_of(word));
      found_hip = found_hip || by_suffix || language == "hip" || language == "hip-cpp-output";
    } else if (word == "--")
      only_files = true;
    else if (is_one_of(word, OnlyAsking))
      asks = true;
    else if (is_one_of(word, NoCode))
      no_code = true;
    else if (is_one_of(word, HostOnly) || is_one_of(word, NotHostOnly))
      host_only = is_one_of(word, HostOnly);
    else if (word == "-x" || word == "--language") {
      if (next + 1 != end)
        language = *++next;
    } else if (starts_with(word, "-x"))
      language = word.substr(2);
    else if (starts_with(word, "--language="))
      language = word.substr(word.find('=') + 1);
    else if ((is_one_of(word, WithValue) || starts_with(word, "-Xarch_")) && next + 1 != end)
      ++next;
  }
  return !found_hip || asks ? kNothing : no_code || host_only ? kReads : kGenerates;
}

/// Return the index of the compiler in `[ccache …] compiler argument…`.
size_t split_launchers(const Words &command) {
  size_t index = 0;
  while (index + 1 < command.size() && is_one_of(base_name(command[index]), Launchers)) {
    ++index;
    while (index + 1 < command.size() && (starts_with(command[index], "-") || command[index].find('=') != string::npos))
      ++index; // the launcher's own options and settings
  }
  return index;
}

bool is_program(const string &path) {
  struct stat state;
  return !access(path.c_str(), X_OK) && !stat(path.c_str(), &state) && S_ISREG(state.st_mode);
}

/// Return the absolute path of a program, or nothing. Links are kept, because they may choose what a program does.
string find(const string &name) {
  char directory[PATH_MAX];
  if (name.find('/') != string::npos) {
    if (!is_program(name) || (name[0] != '/' && !getcwd(directory, sizeof directory)))
      return "";
    return name[0] == '/' ? name : string(directory) + "/" + name;
  }
  const char *search = getenv("PATH");
  string_view path = search ? search : "";
  while (!path.empty()) {
    string_view folder = path.substr(0, path.find(':'));
    path.remove_prefix(path.size() == folder.size() ? folder.size() : folder.size() + 1);
    // Python may look up the contents of a folder relative to the current one.
    if (string program = string(folder) + "/" + name; starts_with(folder, "/") && is_program(program))
      return program;
  }
  return "";
}

/// Return `SIZE<separator>NANOSECONDS` of the file's state, or nothing.
string state_of(const string &path, char separator) {
  struct stat state;
  if (stat(path.c_str(), &state))
    return "";
  long long nanoseconds = state.st_mtim.tv_sec * 1000000000ll + state.st_mtim.tv_nsec;
  return std::to_string((long long)state.st_size) + separator + std::to_string(nanoseconds);
}

/// Return whether only this user and root can have written a file, or put another in its place (see
/// luthier/cache/folder.py). Every folder on the path is checked, behind links.
bool is_own(const string &named) {
  char resolved[PATH_MAX];
  if (!realpath(named.c_str(), resolved))
    return false;
  string path = resolved;
  for (size_t at = 0; at != string::npos;) {
    at = path.find('/', at + 1);
    string part = at == string::npos ? path : path.substr(0, at);
    struct stat state;
    if (part.empty() || lstat(part.c_str(), &state) || (state.st_uid && state.st_uid != geteuid()))
      return false;
    bool is_last = at == string::npos, is_sticky = S_ISDIR(state.st_mode) && (state.st_mode & S_ISVTX);
    if (is_last ? !S_ISREG(state.st_mode) : !S_ISDIR(state.st_mode))
      return false;
    // In a folder with the sticky bit, only the owner of a file can replace it.
    if ((state.st_mode & (S_IWGRP | S_IWOTH)) && (is_last || !is_sticky))
      return false;
  }
  return true;
}

struct Answer {
  bool known = false;
  string plugin, include;
};

/// Return what Python found for this compiler and these settings, as long as nothing of it has changed.
Answer remembered(const string &compiler, const string &home) {
  string question = compiler + "\n" + state_of(compiler, '\n') + "\n" + home;
  for (string_view name : Variables) {
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): each is a literal, which ends with a zero
    const char *value = getenv(name.data());
    question += "\n" + string(name) + (value ? string("=") + value : "");
  }
  string cache;
  if (const char *setting = getenv("LUTHIER_CACHE_DIR"))
    cache = setting;
  else if (const char *folder = getenv("XDG_CACHE_HOME"); folder && *folder == '/')
    cache = string(folder) + "/luthier";
  else if (const char *user = getenv("HOME"); user && *user)
    cache = string(user) + "/.cache/luthier";
  uint64_t hash = HashStart; // FNV-1a
  for (unsigned char byte : question)
    hash = (hash ^ byte) * HashFactor;
  char name[40];
  snprintf(name, sizeof name, "/wrapper/%016llx.answer", (unsigned long long)hash);
  string text;
  if (!cache.empty() && is_own(cache + name) && !read_file(cache + name, text))
    return {};

  Words fields; // each ends with a zero byte
  for (size_t at = 0, end; (end = text.find('\0', at)) != string::npos; at = end + 1)
    fields.push_back(text.substr(at, end - at));
  if (fields.size() < 8 || (fields.size() - 5) % 3 || fields[0] != AnswerFormat || fields.back() != AnswerFormat ||
      fields[1] != question)
    return {};
  for (size_t at = 4; at + 1 < fields.size(); at += 3)
    if (state_of(fields[at], '\n') != fields[at + 1] + "\n" + fields[at + 2])
      return {};
  if (!is_own(fields[2]))
    return {};
  return {true, fields[2], fields[3]};
}

string folder_of(const string &path) { return path.substr(0, path.rfind('/') == string::npos ? 0 : path.rfind('/')); }

/// Return the folder of `luthier-wrapper`: that of this program or, for a copy of this program, the one on PATH.
string find_home() {
  char resolved[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", resolved, sizeof resolved);
  if (length > 0 && length < PATH_MAX) {
    string folder = folder_of(string(resolved, length));
    if (is_program(folder + "/luthier-wrapper"))
      return folder;
  }
  string elsewhere = find("luthier-wrapper");
  return elsewhere.empty() || !realpath(elsewhere.c_str(), resolved) ? "" : folder_of(resolved);
}

[[noreturn]] void become(const Words &before, char **rest, const char *program) {
  std::vector<char *> arguments;
  arguments.reserve(before.size());
  for (const string &word : before)
    arguments.push_back(const_cast<char *>(word.c_str()));
  for (; *rest; ++rest)
    arguments.push_back(*rest);
  arguments.push_back(nullptr);
  execvp(program, arguments.data());
  fprintf(stderr, "%s: error: cannot run %s: %s\n", kName, program, strerror(errno));
  _exit(127);
}

} // namespace

int main(int count, char **arguments) {
  ++arguments, --count;
  string home = find_home();
  if (home.empty()) {
    fprintf(stderr, "%s: error: luthier-wrapper is neither beside this program nor on PATH: install luthier there\n",
            kName);
    return 127;
  }
  Words command;
  bool is_pythons = kIsHipcc ? getenv(Started) != nullptr : count == 0;
  for (int index = 0; index < count; ++index) {
    bool is_own_option = starts_with(arguments[index], "--luthier-");
    is_pythons = is_pythons || is_own_option || starts_with(arguments[index], "-fpass-plugin=");
    if (!is_own_option)
      command.push_back(arguments[index]);
  }
  if (kIsHipcc) {
    setenv("HIP_PLATFORM", "amd", /*overwrite=*/0);
    const char *named = getenv("LUTHIER_HIPCC");
    command.insert(command.begin(), named && *named ? named : find("hipcc"));
  }
  size_t at = kIsHipcc ? 0 : split_launchers(command), behind = std::min(at + 1, command.size());
  Words words;
  std::vector<std::pair<dev_t, ino_t>> within;
  expand(Words(command.begin() + behind, command.end()), within, words);
  const Verdict verdicts[] = {analyse(words, false), analyse(words, true)};
  auto leave_to_python = [&] {
    string python = home + "/luthier-wrapper";
    become({python, kIsHipcc ? "hipcc" : "cc", std::to_string(at), kVerdicts[verdicts[0]], kVerdicts[verdicts[1]]},
           arguments, python.c_str());
  };
  if (is_pythons)
    leave_to_python();

  command.resize(at + 1);
  const string compiler = command.back();
  const Verdict verdict = verdicts[base_name(compiler).find("hipcc") != string::npos];
  // Python finds out whether a hipcc is one of Luthier's.
  if (verdict != kNothing || kIsHipcc) {
    string path = find(compiler);
    Answer answer = path.empty() ? Answer() : remembered(path, home);
    if (!answer.known)
      leave_to_python();
    if (verdict == kGenerates)
      for (string_view flag : PluginFlags)
        command.push_back(string(flag) + (flag.back() == '=' ? answer.plugin : ""));
    if (verdict != kNothing)
      command.push_back("-I" + answer.include);
  }
  if (kIsHipcc)
    setenv(Started, compiler.c_str(), 1);
  become(command, arguments + (kIsHipcc ? 0 : at + 1), command.front().c_str());
}
