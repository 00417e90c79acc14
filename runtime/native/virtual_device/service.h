// The service of `luthier run`, which decodes and compiles: what it says of the devices, and what it does on request.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "access_checks.h"
#include "call_site.h"
#include "execution_counters.h"
#include "host.h"
#include "program_memory.h"
#include "ranges.h"
#include "wire.h"

namespace luthier {

// One virtual GPU.
struct Gpu : wire::Gpu {
  std::string target; // gfx90a
};

struct Setup {
  std::vector<Gpu> gpus;
  Engine engine;
  bool counts_told = false;      // at the end of the process
  uint64_t capture_patience = 0; // milliseconds; 0: none are wanted
  Checks checks;
  bool floats_flow = false; // floats are told where an operand is exceptional, too
  bool undefined = false;   // undefined values are followed
  bool findings = false;    // somebody wants to know what checks find
};

class Service {
public:
  // Connects as the environment says; throws `Failure`.
  Service();

  const Setup &setup() const { return setup_; }

  // The plan (layout::plan) of the kernel at `kernel`, of which `object` is the file that `uri` names, loaded at
  // `load_address`; with an empty file `object` is the memory from `load_address` on.
  struct Planned {
    const char *plan;
    std::vector<Extent> variables; // of the object, if bounds are checked
  };
  Planned plan(unsigned gpu, uint64_t kernel, const void *descriptor, uint64_t load_address, bool is_file,
               std::string_view uri, std::string_view object);
  // Return the record by which a kernel, whose code's first byte is at `code`, goes on at an address in another object
  // than its own; Host::kNowhere if there is no instruction.
  uint64_t find_outside(const wire::Outside &where, std::string_view uri, std::string_view object);
  // Have a record that a kernel reaches bound in the table of that key.
  void bind(uint64_t kernel, uint64_t key, uint64_t record);
  // Return the description of a fault.
  std::string explain(const Writer &state);
  // Something that a check of the program found; the calls are what it is about, if it is about any.
  void found(const wire::Sighting &sighting, const CallTrace &calls = {});
  // The same of a call of a HIP function: its name, and the symbol and the file that the call is in.
  void found(const wire::CallSighting &sighting, std::string_view function, std::string_view symbol,
             std::string_view file);
  // A race with a copy, and the call of HIP that the copy is of: the same of it.
  void found_copy(const wire::Sighting &race, std::string_view function, std::string_view symbol,
                  std::string_view file);
  // What hazards make of a state of a wave and a record: how many steps of the automaton, at least one.
  uint64_t follow(const wire::Follow &wanted, layout::Transition *made);
  // What the watch of a launch found: layout::found, layout::met.
  void watched(const wire::Watched &launch, std::string_view found, std::string_view met);
  // If it is wanted: what was executed so far; at the end of the process, all.
  void tell(const Tally &tally, bool is_all);
  // A launch runs for long; where its waves are, and what its code has executed in this process.
  void tell_running(const wire::Running &launch, const std::map<uint64_t, uint64_t> &places, const Tally &tally);
  // What the process has executed often so far.
  void tell_hot(const Tally &tally);
  // Whether a launch is captured: asked before it begins, with the packet and the memory that it may access.
  bool capture(const wire::Capture &launch, std::string_view packet, const RangeTable &memory);
  // That launch has ended; so many others ran beside it.
  void captured(bool failed, bool outside, uint64_t beside, const Tally &before, const Tally &after);
  // Memory shared between processes: a name for a file of memory, and back.
  uint64_t share(int fd, uint64_t size);
  void unshare(uint64_t name);
  int attach(uint64_t name, uint64_t &size);

private:
  Reader ask(wire::Request kind, const std::string &payload, int fd = -1, int *received = nullptr);
  void map(int fd, const wire::Setup &told);
  void import(Reader &reply);

  std::mutex mutex_;
  std::unique_ptr<Channel> channel_;
  uint64_t *slots_ = nullptr;
  uint64_t imported_ = 0;
  Setup setup_;
};

} // namespace luthier
