// ROCr as it was before this library changed its table.
#pragma once

#include <hsa/hsa.h>
#include <hsa/hsa_api_trace.h>
#include <hsa/hsa_ven_amd_loader.h>
#include <string>
#include <vector>

#include "failure.h"

namespace luthier {

struct Runtime {
  CoreApiTable core{};
  AmdExtTable amd{};
  hsa_ven_amd_loader_1_01_pfn_t loader{};

  // Copies what the table has; its members grow from version to version.
  explicit Runtime(const HsaApiTable &table);
  // Throws `Failure` unless a call succeeded.
  void check(hsa_status_t status, const char *what) const;

  // The GPUs in the runtime's order.
  const std::vector<hsa_agent_t> &gpus();
  // The number of a GPU, -1 for another agent.
  int number_of(hsa_agent_t agent);

private:
  std::vector<hsa_agent_t> gpus_;
};

}  // namespace luthier
