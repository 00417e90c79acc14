#include "host_stack.h"

#include <algorithm>
#include <deque>
#include <link.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <unistd.h>
#include <unordered_map>

#include "call_site.h"
#include "next_function.h"
#include "unwinder.h"

namespace luthier {

namespace {

constexpr size_t kMostFrames = 512, kMostStacks = 1 << 16;

// The path of the program: the dynamic linker does not name it.
const std::string &program() {
  static const auto *const path = [] {
    std::string text(4096, '\0');
    const ssize_t size = readlink("/proc/self/exe", text.data(), text.size());
    text.resize(size > 0 ? size : 0);
    return new std::string(text);
  }();
  return *path;
}

// Return the place of code that a call returns to. The call is before that address.
CodePlace place_of(const void *returns) {
  struct Search {
    uint64_t address;
    CodePlace made;
  } search{reinterpret_cast<uint64_t>(returns) - 1, {"", reinterpret_cast<uint64_t>(returns) - 1}};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        auto &wanted = *static_cast<Search *>(data);
        if (!is_in(*info, wanted.address))
          return 0;
        uint64_t first = ~uint64_t{0};
        for (unsigned number = 0; number < info->dlpi_phnum; ++number)
          if (const auto &segment = info->dlpi_phdr[number]; segment.p_type == PT_LOAD)
            first = std::min<uint64_t>(first, segment.p_vaddr & ~uint64_t{0xFFF});
        wanted.made.file = info->dlpi_name && *info->dlpi_name ? info->dlpi_name : program();
        wanted.made.offset = wanted.address - info->dlpi_addr - first;
        return 1;
      },
      &search);
  // A runtime does not call by libffi: that is the binding's.
  search.made.is_runtime = is_runtime(search.made.file) && search.made.file.find("/libffi") == std::string::npos;
  return search.made;
}

struct PythonHash {
  size_t operator()(const PythonPlace &place) const { return reinterpret_cast<uintptr_t>(place.code) * 31 + place.at; }
};

class Stacks {
public:
  static Stacks &get() {
    static Stacks *const made = new Stacks; // never destroyed: programs launch while they end
    return *made;
  }

  CallTrace here(std::span<const uint32_t> ranges, bool &is_new) {
    const LoadedObjects objects = loaded_objects();
    const void *const interpreter = find_python(objects.added);
    PythonPlace python[kMostFrames];
    const size_t functions = python_places(python, kMostFrames);
    const void *returns[kMostFrames];
    std::lock_guard lock(mutex_);
    if (objects.removed != removed_ || interpreter != interpreter_) {
      places_.clear();
      removed_ = objects.removed;
      interpreter_ = interpreter;
      interpreter_file_ = interpreter ? place_of(interpreter).file : "";
    }
    const Unwound native = unwind(objects, returns, kMostFrames);
    HostStack &made = scratch_;
    std::vector<HostFrame> &frames = made.frames;
    made.is_whole = native.is_whole && functions < kMostFrames;
    made.ranges.assign(ranges.begin(), ranges.end());
    frames.clear();
    size_t inner = 0, outer = 0; // where the interpreter's functions begin and end
    for (size_t number = 0; number < native.count; ++number)
      if (add(frames, returns[number])->is_interpreter) {
        inner = outer ? inner : frames.size() - 1;
        outer = frames.size();
      }
    if (!functions)
      return kept(made, is_new);
    if (outer)
      frames.erase(frames.begin() + inner, frames.begin() + outer);
    else
      inner = frames.size();
    frames.insert(frames.begin() + inner, functions, {});
    for (size_t number = 0; number < functions; ++number)
      frames[inner + number].python = known(python[number]);
    return kept(made, is_new);
  }

  CallTrace of(std::span<const void *const> returns) {
    const LoadedObjects objects = loaded_objects();
    std::lock_guard lock(mutex_);
    if (objects.removed != removed_) {
      places_.clear();
      removed_ = objects.removed;
    }
    scratch_.is_whole = false;
    scratch_.ranges.clear();
    scratch_.frames.clear();
    for (const void *each : returns)
      add(scratch_.frames, each);
    bool ignored = false;
    return kept(scratch_, ignored);
  }

private:
  Stacks() {
    // A child process has the memory of its parent: no other thread of that may be in the middle of a change.
    pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); }, [] { get().mutex_.unlock(); });
  }

  // Add the call that returns to an address to a stack.
  const CodePlace *add(std::vector<HostFrame> &frames, const void *returns) {
    const CodePlace *place = known(returns);
    if (frames.size() == 1 && frames.front().code->is_runtime && place->is_runtime)
      frames.front() = {place}; // a runtime that calls itself
    else
      frames.push_back({place});
    return place;
  }

  const CodePlace *known(const void *returns) {
    if (const auto place = places_.find(returns); place != places_.end())
      return place->second;
    CodePlace made = place_of(returns);
    const std::string name = made.file.substr(made.file.rfind('/') + 1);
    made.is_interpreter = interpreter_ && (made.file == interpreter_file_ || name.starts_with("python3"));
    const CodePlace *place = &by_file_.try_emplace({made.file, made.offset, made.is_interpreter}, made).first->second;
    if (!made.file.empty()) // else an object may be loaded there
      places_[returns] = place;
    return place;
  }

  const PythonFrame *known(const PythonPlace &place) {
    auto &[identity, frame] = functions_[place];
    const CodeIdentity its = identity_of(place.code);
    if (!frame || its != identity) { // or the code is gone, and other code is in its place
      const PythonFrame made = python_frame(place);
      frame = &by_line_.try_emplace({made.file, made.name, made.line}, made).first->second;
      identity = its;
    }
    return frame;
  }

  CallTrace kept(const HostStack &made, bool &is_new) {
    uint64_t hash = made.is_whole;
    const auto mix = [&](uint64_t word) { hash = (hash ^ word ^ hash >> 29) * 0x9E3779B97F4A7C15; };
    for (const HostFrame &frame : made.frames)
      mix(reinterpret_cast<uint64_t>(frame.code) ^ reinterpret_cast<uint64_t>(frame.python));
    for (const uint32_t range : made.ranges)
      mix(range);
    std::vector<const HostStack *> &same = by_hash_[hash];
    for (const HostStack *stack : same)
      if (stack->is_whole == made.is_whole && stack->frames == made.frames && stack->ranges == made.ranges)
        return stack;
    if (all_.size() == kMostStacks)
      return nullptr;
    HostStack &stack = all_.emplace_back(made);
    stack.number = static_cast<uint32_t>(all_.size());
    same.push_back(&stack);
    is_new = true;
    return &stack;
  }

  std::mutex mutex_;
  unsigned long long removed_ = 0;
  const void *interpreter_ = nullptr; // one of its functions
  std::string interpreter_file_;
  HostStack scratch_;
  std::unordered_map<const void *, const CodePlace *> places_;
  std::unordered_map<PythonPlace, std::pair<CodeIdentity, const PythonFrame *>, PythonHash> functions_;
  std::map<std::tuple<std::string, uint64_t, bool>, CodePlace> by_file_;
  std::map<std::tuple<std::string, std::string, uint32_t>, PythonFrame> by_line_;
  std::unordered_map<uint64_t, std::vector<const HostStack *>> by_hash_;
  std::deque<HostStack> all_;
};

} // namespace

CallTrace stack_here(std::span<const uint32_t> ranges, bool *is_new) {
  bool ignored = false;
  return Stacks::get().here(ranges, is_new ? *is_new : ignored);
}

CallTrace stack_of(std::span<const void *const> returns) { return Stacks::get().of(returns); }

void find_interpreter() { find_python(loaded_objects().added); }

} // namespace luthier
