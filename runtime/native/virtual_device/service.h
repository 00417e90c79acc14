// The service of `luthier run`, which describes the devices, and decodes and compiles on request.
#pragma once

#include <vector>

#include "access_checks.h"
#include "execution_counters.h"
#include "host.h"
#include "host_stack.h"
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
  // Connect as the environment says. Throws `Failure`.
  Service();

  const Setup &setup() const { return setup_; }
  // Return the reply to a request; throws `Failure`.
  template <typename Request> typename Request::Reply ask(const Request &request) { return channel_.ask(request); }
  // Report a finding of a check, with the calls that it concerns, if any.
  void found(const wire::Sighting &sighting, CallTrace calls = nullptr);
  // The same of a call of a HIP function: its name, and the symbol and the file that the call is in.
  void found(const wire::CallSighting &sighting, std::string_view function, std::string_view symbol,
             std::string_view file);
  // The same of the host's use of memory that an operation in flight uses: the function that uses it for the program,
  // the one that enqueued the operation, and the calls that led to both.
  void found(const wire::InFlightSighting &sighting, std::string_view function, std::string_view operation,
             CallTrace calls, CallTrace enqueued);
  // Compute the steps of the hazard automaton for a state of a wave and a record: at least one.
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
