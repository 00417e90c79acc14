#include "runtime.h"

#include <algorithm>
#include <cstring>

namespace luthier {

namespace {

// Positions in the table of ROCm 5.2, counted in functions: five others came after these later.
constexpr size_t kLastBeforeTwo = 16;   // hsa_amd_memory_async_copy
constexpr size_t kLastBeforeThree = 47; // hsa_amd_svm_prefetch_async

// A table gives its size in place of the minor version.
CoreApiTable copy_of(const CoreApiTable *table) {
  CoreApiTable copy{};
  std::memcpy(&copy, table, std::min<size_t>(table->version.minor_id, sizeof copy));
  return copy;
}

AmdExtTable copy_of(AmdExtTable *table) {
  AmdExtTable copy{};
  for (size_t offset = sizeof copy.version; table && offset < sizeof copy; offset += sizeof(void *))
    if (void **from = amd_slot(table, offset))
      std::memcpy(reinterpret_cast<char *>(&copy) + offset, from, sizeof(void *));
  return copy;
}

} // namespace

void **amd_slot(AmdExtTable *table, size_t offset) {
  const uint32_t order = table->version.major_id, size = table->version.minor_id;
  constexpr uint32_t kBuiltWith = HSA_AMD_EXT_API_TABLE_MAJOR_VERSION;
  size_t position = (offset - sizeof table->version) / sizeof(void *) + 1;
  if (kBuiltWith == 1 && order == 2)
    position += position <= kLastBeforeTwo ? 0 : position <= kLastBeforeThree ? 2 : 5;
  else if (order != kBuiltWith || (order == 1 && size != sizeof *table))
    throw Failure("the order of the table of this ROCr is unknown (version " + std::to_string(order) + ", " +
                  std::to_string(size) + " bytes)");
  const size_t place = sizeof table->version + (position - 1) * sizeof(void *);
  return place + sizeof(void *) <= size ? reinterpret_cast<void **>(reinterpret_cast<char *>(table) + place) : nullptr;
}

Runtime::Runtime(const HsaApiTable &table) : core(copy_of(table.core_)), amd(copy_of(table.amd_ext_)) {
  if (!core.hsa_executable_iterate_program_symbols_fn || !amd.hsa_amd_queue_intercept_register_fn)
    throw Failure("this ROCr is too old: its tool table lacks functions");
  check(core.hsa_system_get_major_extension_table_fn(HSA_EXTENSION_AMD_LOADER, 1, sizeof loader, &loader),
        "its loader extension is missing");
}

void Runtime::check(hsa_status_t status, const char *what) const {
  if (status == HSA_STATUS_SUCCESS || status == HSA_STATUS_INFO_BREAK)
    return;
  const char *text = nullptr;
  core.hsa_status_string_fn(status, &text);
  throw Failure(std::string(what) + ": " + (text ? text : "unknown error"));
}

const std::vector<hsa_agent_t> &Runtime::gpus() {
  if (gpus_.empty())
    core.hsa_iterate_agents_fn(
        [](hsa_agent_t agent, void *data) {
          auto &self = *static_cast<Runtime *>(data);
          hsa_device_type_t type{};
          if (self.core.hsa_agent_get_info_fn(agent, HSA_AGENT_INFO_DEVICE, &type) == HSA_STATUS_SUCCESS &&
              type == HSA_DEVICE_TYPE_GPU)
            self.gpus_.push_back(agent);
          return HSA_STATUS_SUCCESS;
        },
        this);
  return gpus_;
}

int Runtime::number_of(hsa_agent_t agent) {
  const auto &all = gpus();
  const auto place = std::find_if(all.begin(), all.end(), [&](hsa_agent_t gpu) { return gpu.handle == agent.handle; });
  return place == all.end() ? -1 : static_cast<int>(place - all.begin());
}

} // namespace luthier
