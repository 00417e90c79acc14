// Keeps what COMGR, ROCm's compiler library, makes. HIP's runtime has it compile its copy kernels in each process,
// which takes most of the time of a start. Runtimes load COMGR with `dlopen` and look up its functions.
//
// Only results that depend on nothing but their inputs are kept: no file, no variable of the environment. An entry is a
// file that begins with what was requested, which is compared. Whatever is not understood goes to COMGR alone.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <link.h>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "agreement.h"
#include "lookup.h"

namespace {

// COMGR's interface (amd_comgr.h), which builds need not have.
struct Handle {
  uint64_t handle;
};
using Status = int;
constexpr Status kSuccess = 0, kError = 1;
constexpr int kSourceKind = 1, kIncludeKind = 2, kLogKind = 5, kLastKind = 0x3F;
constexpr int kOpenCL12 = 1, kOpenCL20 = 2;              // languages; 0 is none
constexpr size_t kKnownVersions[][2] = {{2, 9}, {3, 0}}; // the last minor version of each major one

constexpr std::string_view kFormat = "Luthier COMGR 2\n";
constexpr size_t kMostBytes = 64 << 20;   // that a process adds
constexpr size_t kMostOfResult = 1 << 20; // larger ones are mostly what COMGR only copies: headers, device libraries
constexpr time_t kMarkedAfter = 86'400;   // a day, in seconds

struct Functions {
  Status (*do_action)(int kind, Handle info, Handle inputs, Handle results);
  Status (*action_info_set_device_lib_linking)(Handle info, bool links);
  Status (*action_info_set_isa_name)(Handle info, const char *name);
  Status (*destroy_action_info)(Handle info);
  void (*get_version)(size_t *major, size_t *minor);
  Status (*action_data_count)(Handle set, int kind, size_t *count);
  Status (*action_data_get_data)(Handle set, int kind, size_t index, Handle *data);
  Status (*create_data)(int kind, Handle *data);
  Status (*release_data)(Handle data);
  Status (*get_data)(Handle data, size_t *size, char *bytes);
  Status (*set_data)(Handle data, size_t size, const char *bytes);
  Status (*get_data_name)(Handle data, size_t *size, char *name);
  Status (*set_data_name)(Handle data, const char *name);
  Status (*data_set_add)(Handle set, Handle data);
  Status (*action_info_get_isa_name)(Handle info, size_t *size, char *name);
  Status (*action_info_get_language)(Handle info, int *language);
  Status (*action_info_get_logging)(Handle info, bool *logs);
  Status (*action_info_get_option_list_count)(Handle info, size_t *count);
  Status (*action_info_get_option_list_item)(Handle info, size_t index, size_t *size, char *option);
  Status (*action_info_get_options)(Handle info, size_t *size, char *options); // until 2
  Status (*action_info_get_bundle_entry_id_count)(Handle info, size_t *count); // from 3
};

using luthier::Lookup;

// What COMGR is to do, or did, cannot be described. Programs in C call this: no exception may leave.
struct Unknown : std::exception {};

void require(bool is_right) {
  if (!is_right)
    throw Unknown();
}

void put(std::string &text, uint64_t number) { text.append(reinterpret_cast<const char *>(&number), sizeof number); }
void put(std::string &text, std::string_view bytes) {
  put(text, bytes.size());
  text += bytes;
}

// Takes numbers and texts from what `put` made; throws `Unknown` at the end.
class Taker {
public:
  explicit Taker(std::string_view rest) : rest_(rest) {}
  bool is_empty() const { return rest_.empty(); }
  std::string_view bytes(size_t size) {
    require(size <= rest_.size());
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  uint64_t number() {
    uint64_t value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return bytes(number()); }

private:
  std::string_view rest_;
};

uint64_t hash_of(std::string_view bytes, uint64_t seed) {
  uint64_t hash = seed ^ bytes.size();
  const auto mix = [&](uint64_t word) { hash = (hash ^ word ^ (hash >> 29)) * 0x9E3779B97F4A7C15U; };
  for (; bytes.size() >= sizeof(uint64_t); bytes.remove_prefix(sizeof(uint64_t))) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    mix(word);
  }
  for (const char byte : bytes)
    mix(static_cast<unsigned char>(byte));
  return hash ^ (hash >> 32);
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
bool begins(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

// Return whether a source, or a macro of an option, reads no file and no clock. Names can be split by the end of a line
// and pasted from parts, and assembly includes files.
bool is_closed(std::string_view source) {
  constexpr std::string_view kParts[] = {"include",  "import",        "embed", "asm",  "__TIME__",
                                         "__DATE__", "__TIMESTAMP__", "##",    "%:%:", "??"};
  std::string joined;
  for (const char next : source) {
    if (next == '\n')
      if (const size_t end = joined.find_last_not_of(" \t\r\f\v"); end != std::string::npos && joined[end] == '\\') {
        joined.resize(end);
        continue;
      }
    joined += next;
  }
  return std::none_of(std::begin(kParts), std::end(kParts), [&](auto part) { return has(joined, part); });
}

// Return whether an option names no file, and causes none to be read or written.
bool is_plain(std::string_view option) {
  constexpr std::string_view kParts[] = {"/", "@", "plugin", "file", "temps", "time", "module", "path"};
  constexpr std::string_view kBegins[] = {"-I", "-L", "-l", "-F", "-B", "-o", "-M", "-i"};
  return is_closed(option) &&
         std::none_of(std::begin(kParts), std::end(kParts), [&](auto part) { return has(option, part); }) &&
         std::none_of(std::begin(kBegins), std::end(kBegins), [&](auto begin) { return begins(option, begin); });
}

// Return whether no variable of the environment changes what COMGR or clang do. COMGR's own cache changes no result.
bool is_environment_plain() {
  constexpr std::string_view kBegins[] = {"AMD_COMGR_", "CCC_", "CLANG_", "LLVM_"};
  for (char **variable = environ; variable && *variable; ++variable) {
    const std::string_view text = *variable;
    if (!begins(text, "AMD_COMGR_CACHE") &&
        std::any_of(std::begin(kBegins), std::end(kBegins), [&](auto begin) { return begins(text, begin); }))
      return false;
  }
  return true;
}

// Return the states of the files of COMGR and of the compiler that it is linked with; empty if one is gone.
std::string compiler_files() {
  std::string states;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *states) {
        const std::string_view path = info->dlpi_name, file = path.substr(path.rfind('/') + 1);
        for (const std::string_view begin : {"libamd_comgr", "libLLVM", "libclang", "liblld"}) {
          struct stat status{};
          if (!begins(file, begin))
            continue;
          auto &text = *static_cast<std::string *>(states);
          if (stat(info->dlpi_name, &status) != 0) {
            text.clear();
            return 1;
          }
          put(text, path);
          for (const timespec time : {status.st_mtim, status.st_ctim}) {
            put(text, time.tv_sec);
            put(text, time.tv_nsec);
          }
          put(text, status.st_ino);
          put(text, status.st_size);
        }
        return 0;
      },
      &states);
  return states;
}

// Files with what was compiled, in a folder that `luthier run` has checked.
class Entries {
public:
  explicit Entries(std::string folder) : folder_(std::move(folder)) {}

  // Return what is kept for a request; nothing if that is missing, damaged, or could be by another user.
  std::optional<std::string> find(std::string_view request) const {
    const int file = open(path_of(request).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
      return std::nullopt;
    std::string text;
    struct stat status{};
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_size <= static_cast<off_t>(2 * kMostOfResult) && !(status.st_mode & (S_IWGRP | S_IWOTH)) &&
        (status.st_uid == 0 || status.st_uid == geteuid())) {
      text.resize(status.st_size);
      size_t done = 0;
      for (ssize_t count; done < text.size() && (count = read(file, &text[done], text.size() - done)) > 0;)
        done += count;
      text.resize(done);
      if (status.st_mtim.tv_sec < time(nullptr) - kMarkedAfter)
        futimens(file, nullptr); // mark it as used
    }
    close(file);
    try {
      Taker taker(text);
      require(taker.bytes(kFormat.size()) == kFormat);
      const uint64_t hash = taker.number();
      require(taker.text() == request);
      const std::string_view results = taker.text();
      require(taker.is_empty() && hash_of(results, hash_of(request, 0)) == hash);
      return std::string(results);
    } catch (const Unknown &) {
      return std::nullopt;
    }
  }

  // Keep results; what cannot be written is compiled again.
  void add(std::string_view request, std::string_view results) {
    std::string text(kFormat);
    put(text, hash_of(results, hash_of(request, 0)));
    put(text, request);
    put(text, results);
    std::lock_guard lock(mutex_);
    if ((added_ += text.size()) > kMostBytes)
      return;
    const std::string path = path_of(request);
    const std::string beside = path + "." + std::to_string(getpid()) + ".new";
    const int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (file < 0)
      return;
    const bool is_whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (close(file) != 0 || !is_whole || rename(beside.c_str(), path.c_str()) != 0)
      unlink(beside.c_str());
  }

private:
  std::string path_of(std::string_view request) const {
    std::array<char, 33> name{};
    std::snprintf(name.data(), name.size(), "%016lx%016lx", hash_of(request, 1), hash_of(request, 2));
    return folder_ + "/" + name.data();
  }

  std::string folder_;
  std::mutex mutex_;
  size_t added_ = 0;
};

// COMGR with kept results.
class Compiler {
public:
  Compiler(const char *folder, void *handle, Lookup *look_up) : entries_(folder) {
    const auto find = [&](auto &function, const char *name, bool is_needed = true) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          look_up(handle, (std::string("amd_comgr_") + name).c_str()));
      is_usable_ = is_usable_ && (function || !is_needed);
    };
#define LUTHIER_FIND(name, ...) find(real.name, #name __VA_OPT__(, ) __VA_ARGS__)
    LUTHIER_FIND(do_action);
    LUTHIER_FIND(action_info_set_device_lib_linking, false);
    LUTHIER_FIND(action_info_set_isa_name);
    LUTHIER_FIND(destroy_action_info);
    LUTHIER_FIND(get_version);
    LUTHIER_FIND(action_data_count);
    LUTHIER_FIND(action_data_get_data);
    LUTHIER_FIND(create_data);
    LUTHIER_FIND(release_data);
    LUTHIER_FIND(get_data);
    LUTHIER_FIND(set_data);
    LUTHIER_FIND(get_data_name);
    LUTHIER_FIND(set_data_name);
    LUTHIER_FIND(data_set_add);
    LUTHIER_FIND(action_info_get_isa_name);
    LUTHIER_FIND(action_info_get_language);
    LUTHIER_FIND(action_info_get_logging);
    LUTHIER_FIND(action_info_get_option_list_count);
    LUTHIER_FIND(action_info_get_option_list_item);
    LUTHIER_FIND(action_info_get_options, false);
    LUTHIER_FIND(action_info_get_bundle_entry_id_count, false);
#undef LUTHIER_FIND
    if (!is_usable_)
      return;
    size_t interface = 0, revision = 0;
    real.get_version(&interface, &revision);
    is_usable_ = std::any_of(std::begin(kKnownVersions), std::end(kKnownVersions),
                             [&](const auto &known) { return interface == known[0] && revision <= known[1]; });
    files_ = compiler_files();
    is_usable_ = is_usable_ && has(files_, "libamd_comgr") && is_environment_plain();
  }

  bool is_usable() const { return is_usable_; }
  // Return whether a function belongs to this library: a program may load several.
  bool has_function(const void *function) const { return base_of(function) == base_of(address_of(real.do_action)); }

  Status do_action(int kind, Handle info, Handle inputs, Handle results) {
    std::optional<std::string> request;
    try {
      request = described(kind, info, inputs);
      require(items_of(results).empty());
      if (const auto kept = entries_.find(*request)) {
        if (fill(results, *kept))
          return kSuccess;
        if (!items_of(results).empty())
          return kError; // COMGR would add to them
      }
    } catch (const std::exception &) { // also without memory
      request.reset();
    }
    const Status status = real.do_action(kind, info, inputs, results);
    try {
      if (request && status == kSuccess)
        if (const std::string items = items_of(results); items.size() <= kMostOfResult)
          entries_.add(*request, items);
    } catch (const std::exception &) {
      return status; // it is not kept
    }
    return status;
  }

  Status set_device_lib_linking(Handle info, bool links) {
    std::lock_guard lock(mutex_);
    const Status status = real.action_info_set_device_lib_linking(info, links);
    if (status == kSuccess)
      linking_[info.handle] = links;
    return status;
  }

  Status set_isa_name(Handle info, const char *name) {
    std::lock_guard lock(mutex_);
    const Status status = real.action_info_set_isa_name(info, name);
    if (status == kSuccess) // else it keeps the one it had
      has_isa_[info.handle] = name && *name;
    return status;
  }

  Status destroy_action_info(Handle info) {
    std::lock_guard lock(mutex_);
    has_isa_.erase(info.handle);
    linking_.erase(info.handle);
    return real.destroy_action_info(info);
  }

  Functions real{};

private:
  template <typename Function> static const void *address_of(Function *function) {
    return reinterpret_cast<const void *>(function);
  }
  static const void *base_of(const void *function) {
    Dl_info info{};
    return dladdr(function, &info) ? info.dli_fbase : nullptr;
  }

  // Return a text or bytes that a function of COMGR returns in two calls, the first for the size.
  template <typename Call> static std::string read(const Call &call) {
    size_t size = 0;
    require(call(&size, nullptr) == kSuccess);
    std::string text(size, '\0');
    require(call(&size, text.data()) == kSuccess && size == text.size());
    return text;
  }

  // Return the request for an action: all that its results depend on. Throws `Unknown` if they may depend on more.
  std::string described(int kind, Handle info, Handle inputs) {
    std::string text = files_;
    put(text, kind);
    int language = 0;
    bool logs = false;
    size_t count = 0;
    require(real.action_info_get_language(info, &language) == kSuccess);
    require(real.action_info_get_logging(info, &logs) == kSuccess);
    put(text, language);
    put(text, logs);
    require(language >= 0 && language <= kOpenCL20);
    {
      std::lock_guard lock(mutex_);
      // COMGR crashes if it is asked for the ISA of an action without one, as HIP 7 makes to unpack bundles.
      const auto has_isa = has_isa_.find(info.handle);
      require(has_isa != has_isa_.end() && has_isa->second);
      const auto links = linking_.find(info.handle);
      put(text, links == linking_.end() ? 2 : uint64_t{links->second});
    }
    put(text, read([&](auto *size, char *to) { return real.action_info_get_isa_name(info, size, to); }));
    if (real.action_info_get_bundle_entry_id_count) {
      require(real.action_info_get_bundle_entry_id_count(info, &count) == kSuccess && count == 0);
    }
    if (real.action_info_get_option_list_count(info, &count) == kSuccess) {
      put(text, count);
      for (size_t index = 0; index < count; ++index) {
        const std::string option =
            read([&](auto *size, char *to) { return real.action_info_get_option_list_item(info, index, size, to); });
        require(is_plain(option));
        put(text, option);
      }
    } else { // options were given as one text
      require(real.action_info_get_options);
      const std::string options =
          read([&](auto *size, char *to) { return real.action_info_get_options(info, size, to); });
      require(is_plain(options) && !has(options, " -"));
      put(text, options);
    }
    const std::string items = items_of(inputs);
    for (Taker taker(items); !taker.is_empty();) {
      const uint64_t item_kind = taker.number();
      const std::string_view name = taker.text(), bytes = taker.text();
      if (item_kind == kLogKind) // of the action before
        continue;
      require((item_kind != kSourceKind && item_kind != kIncludeKind) || (language >= kOpenCL12 && is_closed(bytes)));
      put(text, item_kind);
      put(text, name);
      put(text, bytes.size());
      for (const uint64_t seed : {1, 2})
        put(text, hash_of(bytes, seed));
    }
    return text;
  }

  // Return the data of a set: kind, name and bytes of each.
  std::string items_of(Handle set) const {
    std::string text;
    for (int kind = 1; kind <= kLastKind; ++kind) {
      size_t count = 0;
      if (real.action_data_count(set, kind, &count) != kSuccess)
        continue; // this version has no such kind
      for (size_t index = 0; index < count; ++index) {
        Handle data{};
        require(real.action_data_get_data(set, kind, index, &data) == kSuccess);
        try {
          put(text, kind);
          std::string name = read([&](auto *size, char *to) { return real.get_data_name(data, size, to); });
          put(text, name.c_str()); // its size counts the zero at the end
          put(text, read([&](auto *size, char *to) { return real.get_data(data, size, to); }));
        } catch (const std::exception &) {
          real.release_data(data);
          throw;
        }
        real.release_data(data);
      }
    }
    return text;
  }

  // Put data into an empty set, and return whether COMGR took it; if not, the set is still empty.
  bool fill(Handle set, const std::string &items) const {
    std::vector<Handle> made;
    bool is_made = true;
    for (Taker taker(items); is_made && !taker.is_empty();) {
      const int kind = static_cast<int>(taker.number());
      const std::string name(taker.text());
      std::string_view bytes = taker.text();
      if (bytes.empty()) // COMGR takes no empty data; logs are read as texts that end with a zero
        bytes = std::string_view("\0", 1);
      Handle data{};
      if ((is_made = real.create_data(kind, &data) == kSuccess)) {
        made.push_back(data);
        is_made = real.set_data(data, bytes.size(), bytes.data()) == kSuccess &&
                  real.set_data_name(data, name.c_str()) == kSuccess;
      }
    }
    for (const Handle data : made) {
      is_made = is_made && real.data_set_add(set, data) == kSuccess;
      real.release_data(data); // the set has its own reference
    }
    return is_made;
  }

  Entries entries_;
  std::string files_;
  bool is_usable_ = true;
  std::mutex mutex_;
  std::map<uint64_t, bool> linking_; // action -> what was set, which COMGR does not tell
  std::map<uint64_t, bool> has_isa_;
};

// The first library that is looked up; never destroyed, since programs call it while they end.
Compiler *compiler(void *handle, Lookup *look_up) {
  static Compiler *const made = [&]() -> Compiler * {
    const char *folder = std::getenv(luthier::topology::kCompilationsVariable);
    return folder && *folder ? new Compiler(folder, handle, look_up) : nullptr;
  }();
  return made;
}
Compiler &compiler() { return *compiler(nullptr, nullptr); }

template <typename Function> void *address_of(Function *function) { return reinterpret_cast<void *>(function); }

// Return what replaces a function of COMGR, of the same type; null for all others.
void *replacement_of(std::string_view name) {
  if (name == "amd_comgr_do_action")
    return address_of(+[](int kind, Handle info, Handle inputs, Handle results) {
      return compiler().do_action(kind, info, inputs, results);
    });
  if (name == "amd_comgr_action_info_set_device_lib_linking")
    return address_of(+[](Handle info, bool links) { return compiler().set_device_lib_linking(info, links); });
  if (name == "amd_comgr_action_info_set_isa_name")
    return address_of(+[](Handle info, const char *isa) { return compiler().set_isa_name(info, isa); });
  if (name == "amd_comgr_destroy_action_info")
    return address_of(+[](Handle info) { return compiler().destroy_action_info(info); });
  return nullptr;
}

} // namespace

void *luthier_looked_up(void *handle, const char *name, const void * /*caller*/) {
  if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || !name || !begins(name, "amd_comgr_"))
    return nullptr;
  void *const function = replacement_of(name);
  Lookup *const look_up = function ? luthier_real_dlsym() : nullptr;
  void *const real = look_up ? look_up(handle, name) : nullptr;
  const Compiler *const known = real ? compiler(handle, look_up) : nullptr;
  return known && known->is_usable() && known->has_function(real) ? function : nullptr;
}
