// The functions of ROCr's table before this library changed it.
#pragma once

#include <hsa/hsa.h>
#include <hsa/hsa_api_trace.h>
#include <hsa/hsa_ven_amd_loader.h>
#include <string>
#include <vector>

#include "failure.h"

namespace luthier {

// Return where a table has the function at an offset of `AmdExtTable`; null if it is too short. ROCm 6 inserted five
// functions in the middle of the table and raised its major version to 2; this library may be built with either
// version. Throws `Failure` for another version.
void **amd_slot(AmdExtTable *table, size_t offset);

template <typename Function> void **slot(CoreApiTable *table, Function CoreApiTable::*member) {
  const auto place = reinterpret_cast<char *>(&(table->*member));
  const bool is_present = place + sizeof(void *) <= reinterpret_cast<char *>(table) + table->version.minor_id;
  return is_present ? reinterpret_cast<void **>(place) : nullptr;
}

template <typename Function> void **slot(AmdExtTable *table, Function AmdExtTable::*member) {
  if (!table)
    return nullptr;
  return amd_slot(table, reinterpret_cast<char *>(&(table->*member)) - reinterpret_cast<char *>(table));
}

struct Runtime {
  CoreApiTable core{};
  AmdExtTable amd{};
  hsa_ven_amd_loader_1_01_pfn_t loader{};

  // Copy what the table has: it grows from version to version.
  explicit Runtime(const HsaApiTable &table);
  // Throw `Failure` unless a call succeeded.
  void check(hsa_status_t status, const char *what) const;

  // Return the GPUs in the runtime's order.
  const std::vector<hsa_agent_t> &gpus();
  // Return the number of a GPU, -1 for another agent.
  int number_of(hsa_agent_t agent);

private:
  std::vector<hsa_agent_t> gpus_;
};

} // namespace luthier
