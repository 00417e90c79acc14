// Reads the frames of CPython 3.9 to 3.14 from memory. Bindings (ctypes, hip-python, PyTorch, Triton) release the
// interpreter's lock around a launch, so its C API cannot be called there. These structures do not change within a
// minor version: Include/cpython and Include/internal of CPython's sources, pycore_frame.h and code.h.
#include "python_frames.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <sys/uio.h>
#include <unistd.h>

#include "next_function.h"

namespace luthier {

namespace {

// Offsets in bytes.
struct Layout {
  int minor; // of Python 3
  // From a thread's state to its frame: two steps if the first is not 0.
  size_t frames, frame;
  size_t code, previous, instruction, owner; // in a frame; no owner before 3.11
  size_t first_line, file, name, lines;      // in a code object
  size_t text;                               // characters of a short string
  unsigned scale;                            // bytes of an instruction's number; 0: it is an address
};

constexpr Layout kLayouts[] = {
    {9, 0, 24, 32, 24, 104, 0, 40, 104, 112, 120, 48, 1},  {10, 0, 24, 32, 24, 96, 0, 40, 104, 112, 120, 48, 2},
    {11, 56, 8, 32, 48, 56, 69, 72, 112, 128, 136, 48, 0}, {12, 56, 0, 0, 8, 56, 70, 68, 112, 128, 136, 40, 0},
    {13, 0, 72, 0, 8, 56, 70, 68, 112, 128, 136, 40, 0},   {14, 0, 72, 0, 8, 56, 74, 68, 112, 128, 136, 40, 0},
};

constexpr size_t kType = 8, kLength = 16, kState = 32, kBytes = 32, kTypeSize = 32, kWide = 24;

struct Interpreter {
  const Layout *layout;
  void *(*own_state)();
  const char *code_type, *string_type, *bytes_type;
  size_t code_begin; // of the instructions in a code object
  int (*is_finalizing)();
};

std::atomic<const Interpreter *> the_interpreter = nullptr;
std::atomic<const char *> problem = nullptr;
std::atomic<bool> is_proven = false; // the layout has led to code objects

// Read memory that may not exist.
bool read(const char *from, void *to, size_t size) {
  const iovec local{to, size}, remote{const_cast<char *>(from), size};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

template <typename Value> bool get(const char *object, size_t offset, Value &value) {
  if (!is_proven.load(std::memory_order_relaxed))
    return object && read(object + offset, &value, sizeof value);
  std::memcpy(&value, object + offset, sizeof value);
  return true;
}

bool is_of(const char *object, const char *type) {
  const char *its = nullptr;
  return object && get(object, kType, its) && its == type;
}

template <typename Function> Function symbol(const char *name) {
  void *symbol = dlsym(RTLD_DEFAULT, name);
  return reinterpret_cast<Function>(symbol ? symbol : reinterpret_cast<void *>(next_function<void>(name, "libpython")));
}

// Return whether a loaded object exports a function, by its GNU hash table: `dlsym` waits for threads that load
// objects, which may wait for the caller's locks.
bool exports(const dl_phdr_info &object, const char *name) {
  const ElfW(Dyn) *entry = nullptr;
  for (unsigned number = 0; number < object.dlpi_phnum; ++number)
    if (object.dlpi_phdr[number].p_type == PT_DYNAMIC)
      entry = reinterpret_cast<const ElfW(Dyn) *>(object.dlpi_addr + object.dlpi_phdr[number].p_vaddr);
  const ElfW(Sym) *symbols = nullptr;
  const char *names = nullptr;
  const uint32_t *table = nullptr;
  for (; entry && entry->d_tag != DT_NULL; ++entry) {
    // The dynamic linker adds the object's address to these, unless they cannot be written.
    const uint64_t at = entry->d_un.d_ptr + (entry->d_un.d_ptr < object.dlpi_addr ? object.dlpi_addr : 0);
    if (entry->d_tag == DT_SYMTAB)
      symbols = reinterpret_cast<const ElfW(Sym) *>(at);
    else if (entry->d_tag == DT_STRTAB)
      names = reinterpret_cast<const char *>(at);
    else if (entry->d_tag == DT_GNU_HASH)
      table = reinterpret_cast<const uint32_t *>(at);
  }
  if (!symbols || !names || !table || !table[0])
    return false;
  const uint32_t buckets = table[0], first = table[1], *const bucket = table + 4 + 2 * size_t(table[2]);
  uint32_t hash = 5381;
  for (const char *letter = name; *letter; ++letter)
    hash = hash * 33 + static_cast<uint8_t>(*letter);
  for (uint32_t number = bucket[hash % buckets]; number >= first && number; ++number) {
    const uint32_t its = bucket[buckets + number - first]; // its lowest bit: the last of a chain
    if ((its | 1) == (hash | 1) && symbols[number].st_shndx != SHN_UNDEF &&
        std::strcmp(names + symbols[number].st_name, name) == 0)
      return true;
    if (its & 1)
      break;
  }
  return false;
}

bool has_python() {
  return dl_iterate_phdr([](dl_phdr_info *object, size_t, void *) { return int(exports(*object, "Py_GetVersion")); },
                         nullptr);
}

const Interpreter *find(const char *version) {
  const long minor = std::strncmp(version, "3.", 2) == 0 ? std::strtol(version + 2, nullptr, 10) : 0;
  const bool is_free = std::strstr(version, "free-threading");
  for (const Layout &layout : kLayouts)
    if (layout.minor == minor && !is_free) {
      Interpreter made{&layout,
                       symbol<void *(*)()>("PyGILState_GetThisThreadState"),
                       symbol<const char *>("PyCode_Type"),
                       symbol<const char *>("PyUnicode_Type"),
                       symbol<const char *>("PyBytes_Type"),
                       0,
                       symbol<int (*)()>(layout.minor < 13 ? "_Py_IsFinalizing" : "Py_IsFinalizing")};
      if (!made.own_state || !made.code_type || !made.string_type || !made.bytes_type)
        break;
      // Before 3.11, instructions are numbered.
      if (layout.owner)
        std::memcpy(&made.code_begin, made.code_type + kTypeSize, sizeof made.code_begin);
      return new Interpreter(made); // never destroyed
    }
  problem = is_free ? "Python frames are unknown: this is a free-threaded build"
                    : "Python frames are unknown: only those of CPython 3.9 to 3.14 can be read";
  return nullptr;
}

// Append a character in UTF-8.
void append(std::string &text, uint32_t character) {
  if (character < 0x80) {
    text += static_cast<char>(character);
    return;
  }
  const int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  constexpr uint8_t kFirst[] = {0, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(kFirst[more] | character >> (6 * more));
  for (int left = more - 1; left >= 0; --left)
    text += static_cast<char>(0x80 | (character >> (6 * left) & 0x3F));
}

std::string string_at(const Interpreter &python, const char *object) {
  constexpr uint64_t kMost = 4096;
  uint64_t length = 0;
  uint32_t state = 0;
  if (!is_of(object, python.string_type) || !get(object, kLength, length) || !get(object, kState, state))
    return "";
  const unsigned size = state >> 2 & 7;
  const bool is_compact = state >> 5 & 1, is_ascii = state >> 6 & 1;
  if (!is_compact || (size != 1 && size != 2 && size != 4))
    return "";
  std::string text;
  const char *at = object + python.layout->text + (is_ascii ? 0 : python.layout->minor < 12 ? kWide : kWide - 8);
  for (uint64_t left = std::min(length, kMost); left > 0; --left, at += size) {
    uint32_t character = 0;
    std::memcpy(&character, at, size);
    append(text, character);
  }
  return text;
}

// Read the numbers of a line table.
struct Table {
  const uint8_t *at, *end;

  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; at < end && shift < 64; shift += 6) {
      const uint8_t byte = *at++;
      value |= uint64_t(byte & 0x3F) << shift;
      if (!(byte & 0x40))
        break;
    }
    return value;
  }
  int64_t signed_number() {
    const uint64_t value = number();
    return value & 1 ? -static_cast<int64_t>(value >> 1) : static_cast<int64_t>(value >> 1);
  }
};

// Objects/locations.md of 3.11 and later.
uint32_t line_of_locations(Table table, uint64_t wanted, int64_t line) {
  for (uint64_t place = 0; table.at < table.end;) {
    const uint8_t first = *table.at++;
    const unsigned kind = first >> 3 & 15;
    place += 2 * (uint64_t(first & 7) + 1);
    if (kind < 10) {
      table.at += 1;
    } else if (kind < 13) {
      line += kind - 10;
      table.at += 2;
    } else if (kind < 15) {
      line += table.signed_number();
      for (int more = kind == 14 ? 3 : 0; more > 0; --more)
        table.number();
    }
    if (wanted < place)
      return kind == 15 ? 0 : static_cast<uint32_t>(line);
  }
  return 0;
}

// Objects/lnotab_notes.txt: pairs of bytes.
uint32_t line_of_pairs(Table table, uint64_t wanted, int64_t line, bool is_old) {
  uint64_t place = 0;
  for (; table.at + 1 < table.end; table.at += 2) {
    const auto more = static_cast<int8_t>(table.at[1]);
    place += table.at[0];
    if (is_old && place > wanted) // the address of the line's first instruction comes before it
      return static_cast<uint32_t>(line);
    if (more != -128 || is_old)
      line += more;
    if (!is_old && wanted < place)
      return more == -128 ? 0 : static_cast<uint32_t>(line);
  }
  return is_old ? static_cast<uint32_t>(line) : 0;
}

} // namespace

const void *find_python(unsigned long long objects) {
  static std::atomic<unsigned long long> known = 0;
  const Interpreter *python = the_interpreter.load(std::memory_order_acquire);
  if (!python && !problem && known.exchange(objects) != objects && has_python())
    if (const auto version = symbol<const char *(*)()>("Py_GetVersion"))
      the_interpreter = python = find(version());
  return python ? reinterpret_cast<const void *>(python->own_state) : nullptr;
}

size_t python_places(PythonPlace *places, size_t most) {
  const Interpreter *python = the_interpreter.load(std::memory_order_acquire);
  if (!python || problem || (python->is_finalizing && python->is_finalizing()))
    return 0;
  const Layout &layout = *python->layout;
  const auto *state = static_cast<const char *>(python->own_state());
  if (!state)
    return 0;
  size_t count = 0;
  const char *frame = nullptr;
  bool reads = (!layout.frames || get(state, layout.frames, state)) && get(state, layout.frame, frame);
  while (reads && frame && count < most) {
    constexpr uint8_t kOfNative = 3; // or more, from 3.12 on: of the interpreter itself
    constexpr uintptr_t kTags = 3;   // of references on the stack, from 3.14 on
    const char *code = nullptr, *previous = nullptr;
    uint8_t owner = 0;
    uint64_t at = 0;
    reads = get(frame, layout.code, code) && get(frame, layout.previous, previous) &&
            (layout.owner ? get(frame, layout.instruction, at) && get(frame, layout.owner, owner) : true);
    code = reinterpret_cast<const char *>(reinterpret_cast<uintptr_t>(code) & ~kTags);
    if (reads && owner < kOfNative) {
      if (!layout.owner) {
        int32_t number = 0;
        reads = get(frame, layout.instruction, number);
        at = uint64_t(number < 0 ? 0 : number) * layout.scale;
      } else {
        at -= reinterpret_cast<uint64_t>(code) + python->code_begin;
      }
      reads = reads && is_of(code, python->code_type);
      if (reads)
        places[count++] = {code, at};
    }
    frame = previous;
  }
  if (!reads) {
    problem = "Python frames are unknown: this interpreter's memory is not laid out as that of its version";
    return 0;
  }
  if (count)
    is_proven = true;
  return count;
}

CodeIdentity identity_of(const char *code) {
  const Layout &layout = *the_interpreter.load()->layout;
  CodeIdentity made{};
  uint32_t line = 0;
  get(code, layout.file, made.words[0]);
  get(code, layout.name, made.words[1]);
  get(code, layout.lines, made.words[2]);
  get(code, layout.first_line, line);
  made.words[3] = line;
  return made;
}

PythonFrame python_frame(const PythonPlace &place) {
  const Interpreter &python = *the_interpreter.load();
  const Layout &layout = *python.layout;
  const char *file = nullptr, *name = nullptr, *lines = nullptr;
  int32_t first = 0;
  get(place.code, layout.file, file);
  get(place.code, layout.name, name);
  get(place.code, layout.lines, lines);
  get(place.code, layout.first_line, first);
  PythonFrame made{string_at(python, name), string_at(python, file), 0};
  uint64_t size = 0;
  if (!is_of(lines, python.bytes_type) || !get(lines, kLength, size))
    return made;
  const auto *begin = reinterpret_cast<const uint8_t *>(lines) + kBytes;
  const Table table{begin, begin + size};
  made.line = layout.owner ? line_of_locations(table, place.at, first)
                           : line_of_pairs(table, place.at, first, layout.minor < 10);
  return made;
}

const char *why_no_python() { return problem; }

} // namespace luthier
