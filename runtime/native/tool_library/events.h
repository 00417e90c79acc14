// Calls of API functions, for tools that want them reported: records in memory that the service reads even if this
// process is killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels.h"

namespace luthier {

using wire::ApiFunction;

class EventLog {
public:
  EventLog(Client &client, Faults &faults);

  // Tells the service what there will be events of; the number of the first function. Throws `Failure`.
  uint32_t add(const std::vector<ApiFunction> &functions);

  // A call begins: its number. `values` are the arguments.
  uint64_t enter(uint32_t function, std::span<const uint64_t> values);
  // It has ended. `values` are the outputs; none where the call failed.
  void exit(uint32_t function, uint64_t call, const uint64_t *result, std::span<const uint64_t> values);

  // Return whether this process told the service of it: a forked one has the memory of another's.
  bool is_own() const;

  // Return whether a name matches one of the patterns, as in a shell.
  static bool wanted(const std::vector<std::string> &patterns, const char *name);
  // A word that a call has written, read safely.
  static bool read(uint64_t from, size_t size, bool is_signed, uint64_t &value);
  // The number in the low bytes of a word.
  static uint64_t extend(uint64_t value, size_t size, bool is_signed);

private:
  void put(wire::EventRecord &record, std::span<const uint64_t> values);

  Client &client_;
  Faults &faults_;
  std::mutex mutex_;
  std::atomic<bool> on_{false};
  std::atomic<uint64_t> calls_{0};
  uint32_t functions_ = 0;
  wire::EventHead *head_ = nullptr;
  wire::EventRecord *records_ = nullptr;
  uint64_t count_ = 0;
};

// Report the calls of HSA functions that tools want reported, from now on.
void tell_of_hsa(HsaApiTable &table, EventLog &log, const std::vector<std::string> &patterns);
// Report the calls of HIP functions; false if the process has not loaded it yet.
bool tell_of_hip(EventLog &log, Faults &faults, const std::vector<std::string> &patterns);
// Report the memory that the program has of HIP, from now on.
void tell_of_memory(EventLog &log, const std::vector<std::string> &patterns);
// Report the program's own marks and ranges, from now on.
void tell_of_ranges(EventLog &log, Faults &faults);
// Mend what HIP does wrong while it reports its calls.
void mend_hip_callbacks(HsaApiTable &table);

} // namespace luthier
