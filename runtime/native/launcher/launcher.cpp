//===- launcher.cpp - luthier-cc and luthier-hipcc without Python ---------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// What luthier_build/wrapper.py does, by the same tables, for the commands it has seen before: find out whether a
// compile command generates device code, put flags before its arguments, become the compiler. Everything that needs a
// decision (a compiler seen for the first time, response files, options of Luthier's own) is left to Python:
// `luthier-wrapper`, beside this program. Built twice, with LUTHIER_HIPCC 0 and 1.
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
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "wrapper_tables.h"

using std::string;
using std::string_view;

extern char **environ;

namespace {

constexpr bool IsHipcc = LUTHIER_HIPCC;

template <size_t Size> bool isOneOf(string_view Word, const string_view (&Table)[Size]) {
  return std::find(Table, Table + Size, Word) != Table + Size;
}

bool startsWith(string_view Text, string_view Prefix) { return Text.substr(0, Prefix.size()) == Prefix; }

string_view baseName(string_view Path) { return Path.substr(Path.rfind('/') + 1); }

/// As Python's os.path.splitext: leading dots of a file name begin no suffix.
string_view suffix(string_view Path) {
  string_view Name = baseName(Path);
  size_t Start = Name.find_first_not_of('.'), Dot = Name.rfind('.');
  return Start == string_view::npos || Dot == string_view::npos || Dot < Start ? string_view() : Name.substr(Dot);
}

struct Analysis {
  bool GeneratesDeviceCode, ReadsHip;
};

Analysis analyse(char **Arguments, bool ForHipcc) {
  auto IsHip = [&](string_view Suffix) {
    return ForHipcc ? isOneOf(Suffix, HipccSuffixes) : isOneOf(Suffix, HipSuffixes);
  };
  string_view Language;
  bool FoundHip = false, OnlyFiles = false, NoCodeAsked = false, HostAlone = false, Asks = false;
  if (*Arguments && startsWith(*Arguments, "-cc1"))
    return {false, false};
  for (char **Next = Arguments; *Next; ++Next) {
    string_view Word = *Next;
    if (OnlyFiles || !startsWith(Word, "-") || Word == "-") {
      bool Untold = (Language.empty() || Language == "none") && IsHip(suffix(Word));
      FoundHip = FoundHip || Untold || Language == "hip" || Language == "hip-cpp-output";
    } else if (Word == "--")
      OnlyFiles = true;
    else if (isOneOf(Word, OnlyAsking))
      Asks = true;
    else if (isOneOf(Word, NoCode))
      NoCodeAsked = true;
    else if (isOneOf(Word, HostOnly) || isOneOf(Word, NotHostOnly))
      HostAlone = isOneOf(Word, HostOnly);
    else if (Word == "-x" || Word == "--language") {
      if (Next[1])
        Language = *++Next;
    } else if (startsWith(Word, "-x"))
      Language = Word.substr(2);
    else if (startsWith(Word, "--language="))
      Language = Word.substr(Word.find('=') + 1);
    else if ((isOneOf(Word, WithValue) || startsWith(Word, "-Xarch_")) && Next[1])
      ++Next;
  }
  return {FoundHip && !Asks && !NoCodeAsked && !HostAlone, FoundHip && !Asks};
}

/// Index of the compiler in `[ccache …] compiler argument…`.
int splitLaunchers(int Count, char **Command) {
  int Index = 0;
  while (Index + 1 < Count && isOneOf(baseName(Command[Index]), Launchers)) {
    ++Index;
    while (Index + 1 < Count && (Command[Index][0] == '-' || strchr(Command[Index], '=')))
      ++Index;
  }
  return Index;
}

bool isProgram(const string &Path) {
  struct stat State;
  return !access(Path.c_str(), X_OK) && !stat(Path.c_str(), &State) && S_ISREG(State.st_mode);
}

/// The program `Name` as an absolute path, or nothing; links are kept, for they may choose what a program does.
string find(const string &Name) {
  char Here[PATH_MAX];
  if (Name.find('/') != string::npos) {
    if (!isProgram(Name) || (Name[0] != '/' && !getcwd(Here, sizeof Here)))
      return "";
    return Name[0] == '/' ? Name : string(Here) + "/" + Name;
  }
  const char *Search = getenv("PATH");
  string_view Path = Search ? Search : "";
  while (!Path.empty()) {
    string_view Folder = Path.substr(0, Path.find(':'));
    Path.remove_prefix(Path.size() == Folder.size() ? Folder.size() : Folder.size() + 1);
    // Python may look up the contents of a folder relative to the current one.
    if (string Found = string(Folder) + "/" + Name; startsWith(Folder, "/") && isProgram(Found))
      return Found;
  }
  return "";
}

string readFile(const string &Path) {
  string Text;
  int File = open(Path.c_str(), O_RDONLY | O_CLOEXEC);
  if (File < 0)
    return Text;
  char Buffer[16384];
  for (ssize_t Read; (Read = read(File, Buffer, sizeof Buffer)) > 0;)
    Text.append(Buffer, Read);
  close(File);
  return Text;
}

/// `SIZE<Separator>NANOSECONDS` of the file's state, or nothing.
string stateOf(const string &Path, char Separator) {
  struct stat State;
  if (stat(Path.c_str(), &State))
    return "";
  long long Nanoseconds = State.st_mtim.tv_sec * 1000000000ll + State.st_mtim.tv_nsec;
  return std::to_string((long long)State.st_size) + Separator + std::to_string(Nanoseconds);
}

/// Return whether nobody but this user and root can have written a file, or put another in its place (see
/// luthier/cache/folder.py). Every folder on the path is checked, behind links.
bool isOwn(const string &Named) {
  char Resolved[PATH_MAX];
  if (!realpath(Named.c_str(), Resolved))
    return false;
  string Path = Resolved;
  for (size_t At = 0; At != string::npos;) {
    At = Path.find('/', At + 1);
    string Part = At == string::npos ? Path : Path.substr(0, At);
    struct stat State;
    if (Part.empty() || lstat(Part.c_str(), &State) || (State.st_uid && State.st_uid != geteuid()))
      return false;
    bool IsLast = At == string::npos, IsSticky = S_ISDIR(State.st_mode) && (State.st_mode & S_ISVTX);
    if (IsLast ? !S_ISREG(State.st_mode) : !S_ISDIR(State.st_mode))
      return false;
    // In a folder with the sticky bit nobody exchanges what is another's.
    if ((State.st_mode & (S_IWGRP | S_IWOTH)) && (IsLast || !IsSticky))
      return false;
  }
  return true;
}

struct Answer {
  bool Known = false;
  string Plugin, Include;
};

/// Return what Python found for this compiler and these settings, as long as nothing of it has changed.
Answer remembered(const string &Compiler, const string &Home) {
  string Question = Compiler + "\n" + stateOf(Compiler, '\n') + "\n" + Home;
  for (string_view Name : Variables) {
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): each is a literal, which ends with a zero
    const char *Value = getenv(Name.data());
    Question += "\n" + string(Name) + (Value ? string("=") + Value : "");
  }
  string Cache;
  if (const char *Setting = getenv("LUTHIER_CACHE_DIR"))
    Cache = Setting;
  else if (const char *Folder = getenv("XDG_CACHE_HOME"); Folder && *Folder == '/')
    Cache = string(Folder) + "/luthier";
  else if (const char *User = getenv("HOME"); User && *User)
    Cache = string(User) + "/.cache/luthier";
  uint64_t Hash = HashStart; // FNV-1a
  for (unsigned char Byte : Question)
    Hash = (Hash ^ Byte) * HashFactor;
  char Name[40];
  snprintf(Name, sizeof Name, "/wrapper/%016llx.answer", (unsigned long long)Hash);
  string Text = !Cache.empty() && isOwn(Cache + Name) ? readFile(Cache + Name) : "";

  std::vector<string> Fields; // each ends with a zero byte
  for (size_t At = 0, End; (End = Text.find('\0', At)) != string::npos; At = End + 1)
    Fields.push_back(Text.substr(At, End - At));
  if (Fields.size() < 8 || (Fields.size() - 5) % 3 || Fields[0] != AnswerFormat || Fields.back() != AnswerFormat ||
      Fields[1] != Question)
    return {};
  for (size_t At = 4; At + 1 < Fields.size(); At += 3)
    if (stateOf(Fields[At], '\n') != Fields[At + 1] + "\n" + Fields[At + 2])
      return {};
  if (!isOwn(Fields[2]))
    return {};
  return {true, Fields[2], Fields[3]};
}

string folderOf(const string &Path) { return Path.substr(0, Path.rfind('/') == string::npos ? 0 : Path.rfind('/')); }

/// The folder that `luthier-wrapper` is in: this program's, or, for a copy of it, where the path has it.
string findHome() {
  char Resolved[PATH_MAX];
  ssize_t Length = readlink("/proc/self/exe", Resolved, sizeof Resolved);
  if (Length > 0 && Length < PATH_MAX) {
    string Folder = folderOf(string(Resolved, Length));
    if (isProgram(Folder + "/luthier-wrapper"))
      return Folder;
  }
  string Elsewhere = find("luthier-wrapper");
  return Elsewhere.empty() || !realpath(Elsewhere.c_str(), Resolved) ? "" : folderOf(Resolved);
}

[[noreturn]] void become(const std::vector<string> &Before, char **Rest, const char *Program) {
  std::vector<char *> Arguments;
  Arguments.reserve(Before.size());
  for (const string &Word : Before)
    Arguments.push_back(const_cast<char *>(Word.c_str()));
  for (; *Rest; ++Rest)
    Arguments.push_back(*Rest);
  Arguments.push_back(nullptr);
  execvp(Program, Arguments.data());
  fprintf(stderr, "%s: error: cannot run %s: %s\n", IsHipcc ? "luthier-hipcc" : "luthier-cc", Program, strerror(errno));
  _exit(127);
}

} // namespace

int main(int Count, char **Arguments) {
  ++Arguments, --Count;
  string Home = findHome();
  if (Home.empty()) {
    fprintf(stderr, "%s: error: no luthier-wrapper beside this program nor on the path: install luthier there\n",
            IsHipcc ? "luthier-hipcc" : "luthier-cc");
    return 127;
  }
  string Python = Home + "/luthier-wrapper";
  auto LeaveToPython = [&] { become({Python, IsHipcc ? "hipcc" : "cc"}, Arguments, Python.c_str()); };

  for (int Index = 0; Index < Count; ++Index)
    if (startsWith(Arguments[Index], "--luthier-") || startsWith(Arguments[Index], "-fpass-plugin=") ||
        (Arguments[Index][0] == '@' && Arguments[Index][1]))
      LeaveToPython();
  if (IsHipcc ? getenv(Started) != nullptr : Count == 0)
    LeaveToPython();

  std::vector<string> Command;
  if (IsHipcc) {
    setenv("HIP_PLATFORM", "amd", /*overwrite=*/0);
    const char *Named = getenv("LUTHIER_HIPCC");
    Command.push_back(Named && *Named ? Named : find("hipcc"));
  } else {
    int At = splitLaunchers(Count, Arguments);
    Command.assign(Arguments, Arguments + At + 1);
    Arguments += At + 1;
  }
  string Compiler = Command.back();
  auto [GeneratesDeviceCode, ReadsHip] = analyse(Arguments, baseName(Compiler).find("hipcc") != string::npos);
  // A hipcc must be known to be none of ours, which Python finds out.
  if (ReadsHip || IsHipcc) {
    string Found = find(Compiler);
    Answer Known = Found.empty() ? Answer() : remembered(Found, Home);
    if (!Known.Known) {
      if (!IsHipcc)
        Arguments -= Command.size();
      LeaveToPython();
    }
    if (GeneratesDeviceCode)
      for (string_view Flag : PluginFlags)
        Command.push_back(string(Flag) + (Flag.back() == '=' ? Known.Plugin : ""));
    if (ReadsHip)
      Command.push_back("-I" + Known.Include);
  }
  if (IsHipcc)
    setenv(Started, Compiler.c_str(), 1);
  become(Command, Arguments, Command.front().c_str());
}
