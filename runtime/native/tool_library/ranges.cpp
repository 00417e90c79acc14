// The program's own marks and ranges (roctx), for time lines and stacks of launches. These functions stand before those
// of the program's roctx library, because this library is loaded first (LD_PRELOAD). A program that looks them up by
// name (`dlopen` and `dlsym`, as MIGraphX does) gets them, too.
//
// https://rocm.docs.amd.com/projects/rocprofiler-sdk: rocprofiler-sdk-roctx, and roctracer's roctx.h before it.

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <pthread.h>
#include <utility>

#include "client.h"
#include "events.h"
#include "launch_stacks.h"
#include "lookup.h"
#include "next_function.h"

namespace luthier {

namespace {

constexpr size_t kMostNames = 1 << 14; // of marks and ranges that are distinguished
constexpr size_t kMostBytes = 1024;    // of a name

enum class Kind { kNested, kFree, kMark };
constexpr const char *kApis[] = {"roctx", "roctx.range", "roctx.mark"};

// The call as which a range is recorded: its function, and its number.
using Place = std::optional<std::pair<uint32_t, uint64_t>>;

class Ranges {
public:
  Ranges(EventLog &log, Faults &faults) : log_(log), faults_(faults) {}

  Place begin(Kind kind, const char *message) {
    if (!log_.is_own())
      return {};
    try {
      const uint32_t function = function_of(kind, message ? message : "");
      return std::pair(function, log_.enter(function, {}));
    } catch (const std::exception &problem) {
      faults_.tell(problem.what());
      return {};
    }
  }

  void end(const Place &place) {
    if (place && log_.is_own())
      log_.exit(place->first, place->second, nullptr, {});
  }

private:
  uint32_t function_of(Kind kind, std::string name) {
    name.resize(std::min(name.size(), kMostBytes));
    std::lock_guard lock(mutex_);
    if (functions_.size() >= kMostNames && !functions_.contains({kind, name}))
      name = "(further names)";
    const auto [place, is_new] = functions_.try_emplace({kind, name});
    if (is_new)
      try {
        place->second = log_.add({ApiFunction{false, kApis[static_cast<int>(kind)], name, {}, {}}});
      } catch (...) {
        functions_.erase(place);
        throw;
      }
    return place->second;
  }

  EventLog &log_;
  Faults &faults_;
  std::mutex mutex_;
  std::map<std::pair<Kind, std::string>, uint32_t> functions_;
};

std::atomic<Ranges *> ranges = nullptr;

Place begin(Kind kind, const char *message) {
  Ranges *const current = ranges;
  return current ? current->begin(kind, message) : Place();
}

void end(const Place &place) {
  if (Ranges *const current = ranges)
    current->end(place);
}

// The ranges that a thread is in; a range that began before events were recorded has no place.
std::vector<Place> &nested() {
  static thread_local auto *const places = new std::vector<Place>; // never destroyed: ranges end while threads do
  return *places;
}

// The names of nested ranges, by number.
class Names {
public:
  static Names &get() {
    static Names *const made = new Names; // never destroyed, either
    return *made;
  }

  uint32_t number_of(std::string name) {
    name.resize(std::min(name.size(), kMostBytes));
    std::lock_guard lock(mutex_);
    if (names_.size() >= kMostNames && !numbers_.contains(name))
      name = "(further names)";
    const auto [place, is_new] = numbers_.try_emplace(name, names_.size());
    if (is_new)
      names_.push_back(name);
    return place->second;
  }

  const std::string &name(uint32_t number) {
    std::lock_guard lock(mutex_);
    return names_[number];
  }

private:
  Names() { // see Stacks
    pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); }, [] { get().mutex_.unlock(); });
  }

  std::mutex mutex_;
  std::map<std::string, uint32_t, std::less<>> numbers_;
  std::deque<std::string> names_; // which stay where they are
};

// The numbers of the names of the ranges that a thread is in.
std::vector<uint32_t> &named() {
  static thread_local auto *const numbers = new std::vector<uint32_t>; // never destroyed, as `nested`
  return *numbers;
}

// Ranges that may end on other threads, by number.
struct Free {
  std::mutex mutex;
  std::map<uint64_t, Place> places;
  uint64_t count = 0; // of those that no library has numbered
};

Free &free_ranges() {
  static Free *const made = [] { // never destroyed: threads end ranges while the process ends
    const auto release = [] { free_ranges().mutex.unlock(); };
    pthread_atfork([] { free_ranges().mutex.lock(); }, release, release);
    return new Free;
  }();
  return *made;
}

constexpr const char *kLibraries[] = {"libroctx64", "librocprofiler-sdk-roctx"};

// Return the function of the program's roctx library; null if it has none.
template <typename Function> Function *next(const char *name) {
  Function *function = nullptr;
  for (const char *library : kLibraries)
    function = function ? function : next_function<Function>(name, library);
  return function;
}

} // namespace

const std::string &range_name(uint32_t number) { return Names::get().name(number); }
std::span<const uint32_t> ranges_here() { return named(); }

void tell_of_ranges(EventLog &log, Faults &faults) {
  ranges = new Ranges(log, faults); // never destroyed, either
}

} // namespace luthier

extern "C" {

void roctxMarkA(const char *message) {
  using namespace luthier;
  static auto *const behind = next<void(const char *)>("roctxMarkA");
  end(begin(Kind::kMark, message));
  if (behind)
    behind(message);
}

int roctxRangePushA(const char *message) {
  using namespace luthier;
  static auto *const behind = next<int(const char *)>("roctxRangePushA");
  nested().push_back(begin(Kind::kNested, message));
  named().push_back(Names::get().number_of(message ? message : ""));
  return behind ? behind(message) : static_cast<int>(nested().size()) - 1;
}

int roctxRangePop() {
  using namespace luthier;
  static auto *const behind = next<int()>("roctxRangePop");
  const bool is_in_one = !nested().empty();
  if (is_in_one) {
    end(nested().back());
    nested().pop_back();
    named().pop_back();
  }
  if (behind)
    return behind();
  return is_in_one ? static_cast<int>(nested().size()) : -1;
}

uint64_t roctxRangeStartA(const char *message) {
  using namespace luthier;
  static auto *const behind = next<uint64_t(const char *)>("roctxRangeStartA");
  const Place place = begin(Kind::kFree, message);
  Free &all = free_ranges();
  const uint64_t numbered = behind ? behind(message) : 0;
  std::lock_guard lock(all.mutex);
  const uint64_t number = behind ? numbered : ++all.count;
  all.places[number] = place;
  return number;
}

void roctxRangeStop(uint64_t number) {
  using namespace luthier;
  static auto *const behind = next<void(uint64_t)>("roctxRangeStop");
  Free &all = free_ranges();
  Place place;
  {
    std::lock_guard lock(all.mutex);
    if (const auto entry = all.places.find(number); entry != all.places.end()) {
      place = entry->second;
      all.places.erase(entry);
    }
  }
  end(place);
  if (behind)
    behind(number);
}

} // extern "C"

void *luthier_looked_up(void *handle, const char *name, const void *caller) {
  // First of all: allocators look up other names, before they can give memory.
  if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || !name || !std::string_view(name).starts_with("roctx"))
    return nullptr;
  const std::pair<std::string_view, void *> own[] = {
      {"roctxMarkA", reinterpret_cast<void *>(roctxMarkA)},
      {"roctxRangePushA", reinterpret_cast<void *>(roctxRangePushA)},
      {"roctxRangePop", reinterpret_cast<void *>(roctxRangePop)},
      {"roctxRangeStartA", reinterpret_cast<void *>(roctxRangeStartA)},
      {"roctxRangeStop", reinterpret_cast<void *>(roctxRangeStop)},
  };
  const auto *const entry = std::ranges::find(own, name, &std::pair<std::string_view, void *>::first);
  luthier::Lookup *const real = luthier_real_dlsym();
  if (entry == std::end(own) || !real || luthier::library_of(caller).starts_with("libluthier_"))
    return nullptr;
  const std::string library = luthier::library_of(real(handle, name));
  const bool is_roctx =
      std::ranges::any_of(luthier::kLibraries, [&](const char *known) { return library.starts_with(known); });
  return is_roctx ? entry->second : nullptr;
}
