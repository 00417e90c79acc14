// Prints variables of device code when a program ends: a tools library for ROCr that needs nothing of Luthier.
//
//   g++ -shared -fPIC -O1 read_variables.cpp -o libread_variables.so
//   LUTHIER_VARIABLES=counter HSA_TOOLS_LIB=$PWD/libread_variables.so ./app.patched
//
// For each code object that was loaded on a device, and each variable that LUTHIER_VARIABLES names, a line on standard
// error: name, device, bytes, and the contents as 64-bit numbers (as bytes where they are not a multiple of 8).
#define AMD_INTERNAL_BUILD  // where the next header looks for those beside it
#include <hsa/hsa_api_trace.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {
CoreApiTable hsa;
std::vector<std::string> wanted;
std::vector<hsa_executable_t> loaded;
std::mutex lock;
bool told;

struct Place {
  int device;
  hsa_executable_t executable;
};

hsa_status_t print(hsa_executable_t, hsa_agent_t, hsa_executable_symbol_t symbol, void *data) {
  auto ask = hsa.hsa_executable_symbol_get_info_fn;
  hsa_symbol_kind_t kind;
  uint32_t length = 0, size = 0;
  uint64_t address = 0;
  ask(symbol, HSA_EXECUTABLE_SYMBOL_INFO_TYPE, &kind);
  if (kind != HSA_SYMBOL_KIND_VARIABLE)
    return HSA_STATUS_SUCCESS;
  ask(symbol, HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH, &length);
  std::string name(length, 0);
  ask(symbol, HSA_EXECUTABLE_SYMBOL_INFO_NAME, name.data());
  bool asked = false;
  for (const auto &one : wanted)
    asked |= one == name;
  if (!asked)
    return HSA_STATUS_SUCCESS;
  ask(symbol, HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS, &address);
  ask(symbol, HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE, &size);
  std::vector<uint8_t> bytes(size);
  if (hsa.hsa_memory_copy_fn(bytes.data(), reinterpret_cast<void *>(address), size) != HSA_STATUS_SUCCESS) {
    fprintf(stderr, "variable %s: cannot be read\n", name.c_str());
    return HSA_STATUS_SUCCESS;
  }
  std::ostringstream text;
  if (size % 8 == 0) {
    for (size_t at = 0; at < size; at += 8) {
      uint64_t number;
      memcpy(&number, &bytes[at], 8);
      text << ' ' << number;
    }
  } else {
    for (uint8_t byte : bytes)
      text << ' ' << int(byte);
  }
  fprintf(stderr, "variable %s device %d bytes %u:%s\n", name.c_str(), static_cast<Place *>(data)->device, size,
          text.str().c_str());
  return HSA_STATUS_SUCCESS;
}

hsa_status_t visit(hsa_agent_t agent, void *data) {
  auto place = static_cast<Place *>(data);
  hsa_device_type_t type;
  hsa.hsa_agent_get_info_fn(agent, HSA_AGENT_INFO_DEVICE, &type);
  if (type == HSA_DEVICE_TYPE_GPU) {
    hsa.hsa_executable_iterate_agent_symbols_fn(place->executable, agent, print, data);
    ++place->device;
  }
  return HSA_STATUS_SUCCESS;
}

void tell(hsa_executable_t executable) {
  Place place{0, executable};
  hsa.hsa_iterate_agents_fn(visit, &place);
}

hsa_status_t freeze(hsa_executable_t executable, const char *options) {
  std::lock_guard<std::mutex> guard(lock);
  loaded.push_back(executable);
  return hsa.hsa_executable_freeze_fn(executable, options);
}

hsa_status_t destroy(hsa_executable_t executable) {
  {
    std::lock_guard<std::mutex> guard(lock);
    for (size_t at = 0; at < loaded.size() && !told; ++at)
      if (loaded[at].handle == executable.handle) {
        tell(executable);
        loaded.erase(loaded.begin() + at);
        break;
      }
  }
  return hsa.hsa_executable_destroy_fn(executable);
}

void finish() {
  std::lock_guard<std::mutex> guard(lock);
  for (hsa_executable_t executable : loaded)
    if (!told)
      tell(executable);
  told = true;
}
}  // namespace

extern "C" bool OnLoad(HsaApiTable *table, uint64_t, uint64_t, const char *const *) {
  std::stringstream names(getenv("LUTHIER_VARIABLES") ? getenv("LUTHIER_VARIABLES") : "");
  for (std::string name; std::getline(names, name, ',');)
    wanted.push_back(name);
  hsa = *table->core_;
  table->core_->hsa_executable_freeze_fn = freeze;
  table->core_->hsa_executable_destroy_fn = destroy;
  atexit(finish);  // before HIP goes: its own handlers are older
  return true;
}

extern "C" void OnUnload() { finish(); }
