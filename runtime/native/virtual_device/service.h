// The service of `luthier run`, which decodes and compiles: what it says of the devices, and what it does on request.
#pragma once

#include <vector>

#include "access_checks.h"
#include "call_site.h"
#include "execution_counters.h"
#include "host.h"
#include "wire.h"

namespace luthier {

using wire::Gpu;

struct Setup : wire::Setup {
  Engine engine;
  Checks checks;
};

// Return the counts of a tally.
std::vector<wire::CodeCounts> counts_of(const Tally &tally);

class Service {
public:
  // Connects as the environment says; throws `Failure`.
  Service();

  const Setup &setup() const { return setup_; }
  // Return the reply to a request; throws `Failure`.
  template <typename Request> typename Request::Reply ask(const Request &request) { return channel_.ask(request); }
  // Something that a check of the program found; the calls are what it is about, if it is about any.
  void found(const wire::Sighting &sighting, const CallTrace &calls = {});
  // The same of a call of a HIP function: its name, and the symbol and the file that the call is in.
  void found(const wire::CallSighting &sighting, std::string_view function, std::string_view symbol,
             std::string_view file);
  // What hazards make of a state of a wave and a record: how many steps of the automaton, at least one.
  uint64_t follow(const wire::Follow &wanted, layout::Transition *made);

private:
  void map(int fd);
  void import(const std::vector<std::string> &functions);

  uint64_t *slots_ = nullptr;
  uint64_t imported_ = 0;
  Setup setup_;
  Channel channel_;
};

} // namespace luthier
