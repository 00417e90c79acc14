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

  // Tell the service which functions there will be events of; return the number of the first one. Throws `Failure`.
  uint32_t add(const std::vector<ApiFunction> &functions);

  // Record that a call begins, with its arguments; return its number.
  uint64_t enter(uint32_t function, std::span<const uint64_t> values);
  // Record that a call has ended, with its outputs: none if it failed.
  void exit(uint32_t function, uint64_t call, const uint64_t *result, std::span<const uint64_t> values);

  // Return whether this process reported it to the service: a forked process has the memory of its parent.
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
// Report the memory that the program gets from HIP, from now on.
void tell_of_memory(EventLog &log, const std::vector<std::string> &patterns);
// Report the program's own marks and ranges, from now on.
void tell_of_ranges(EventLog &log, Faults &faults);
// Correct a defect of HIP that shows while it reports its calls.
void mend_hip_callbacks(HsaApiTable &table);

} // namespace luthier
