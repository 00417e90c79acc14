#include "kernels.h"

#include <cstdio>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace luthier {

namespace {

using LoadedCode = hsa_loaded_code_object_t;

// Return the bytes of memory that may be unmapped; empty if it is.
std::string read_if_mapped(uint64_t from, size_t size) {
  std::string bytes(size, '\0');
  iovec local{bytes.data(), size}, remote{reinterpret_cast<void *>(from), size};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(size))
    bytes.clear();
  return bytes;
}

std::string read_safely(uint64_t from, size_t size) {
  std::string bytes = read_if_mapped(from, size);
  if (bytes.size() != size)
    throw Failure("the program has freed a code object from which kernels are launched");
  return bytes;
}

} // namespace

void Faults::tell(const std::string &text) {
  {
    std::lock_guard lock(mutex_);
    if (reported_.size() > 1000 || !reported_.insert(text).second)
      return;
  }
  try {
    client_.ask(wire::Fault{text});
  } catch (const std::exception &) {
    std::lock_guard lock(mutex_);
    left_.push_back(text);
  }
}

void Faults::flush() {
  std::lock_guard lock(mutex_);
  if (client_.is_own())
    for (const std::string &text : left_)
      std::fprintf(stderr, "luthier: not instrumented: %s\n", text.c_str());
  left_.clear();
}

// Return whether the stack that a launch asks for ends where hooks have theirs, its LDS leaves as much as they need,
// and its work-groups have no more waves than were planned for.
bool Kernel::has_room(const hsa_kernel_dispatch_packet_t &packet, Faults &faults) const {
  if (uint64_t{packet.workgroup_size_x} * packet.workgroup_size_y * packet.workgroup_size_z > limits.work_items) {
    faults.tell(name + ": launches with more than " + std::to_string(limits.work_items) +
                " work-items a work-group run uninstrumented: the kernel's metadata allows no more");
    return false;
  }
  if (packet.group_segment_size > limits.group_segment) {
    faults.tell(name + ": launches with more than " + std::to_string(limits.group_segment) +
                " bytes of LDS a work-group run uninstrumented: hooks need " + std::to_string(more_group) + " more");
    return false;
  }
  if (packet.private_segment_size <= limits.private_segment)
    return true;
  faults.tell(name + ": launches with more than " + std::to_string(limits.private_segment) +
              " bytes of private memory a lane run uninstrumented: the private memory of hooks begins there");
  return false;
}

std::pair<uint64_t, bool> Kernel::launched(const hsa_kernel_dispatch_packet_t &packet, Client &client, Faults &faults) {
  const uint64_t number = client.ledger().launched(row);
  return {number, patched && choice_.takes(client.wishes().chosen, packet, number) && has_room(packet, faults)};
}

void Kernel::substitute(hsa_kernel_dispatch_packet_t &packet) const {
  packet.kernel_object = patched;
  packet.private_segment_size += more_private;
  packet.group_segment_size += more_group;
}

std::string Kernel::read_arguments(const hsa_kernel_dispatch_packet_t &packet) const {
  return arguments ? read_if_mapped(reinterpret_cast<uint64_t>(packet.kernarg_address), arguments) : std::string();
}

Kernel *Kernels::find(unsigned gpu, uint64_t kernel_object) {
  std::lock_guard lock(mutex_);
  auto &kernel = kernels_[kernel_object];
  if (!kernel) {
    try {
      kernel = make(gpu, kernel_object);
    } catch (const std::exception &problem) {
      faults_.tell(problem.what());
      kernel = std::make_unique<Kernel>();
    }
  }
  return kernel.get();
}

std::vector<LoadedCode> Kernels::loaded_by(hsa_executable_t executable) {
  std::vector<LoadedCode> loaded;
  runtime_.loader.hsa_ven_amd_loader_executable_iterate_loaded_code_objects(
      executable,
      [](hsa_executable_t, LoadedCode code, void *data) {
        static_cast<std::vector<LoadedCode> *>(data)->push_back(code);
        return HSA_STATUS_SUCCESS;
      },
      &loaded);
  return loaded;
}

void Kernels::keep(hsa_executable_t executable) {
  for (LoadedCode code : loaded_by(executable)) {
    std::string bytes = contents(code);
    std::lock_guard lock(mutex_);
    if (!bytes.empty())
      copies_[{executable.handle, code.handle}] = std::move(bytes);
  }
}

void Kernels::announce(hsa_executable_t executable) {
  const std::vector<LoadedCode> loaded = loaded_by(executable);
  std::lock_guard lock(mutex_);
  for (LoadedCode code : loaded) {
    hsa_agent_t agent{};
    runtime_.check(runtime_.loader.hsa_ven_amd_loader_loaded_code_object_get_info(
                       code, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_AGENT, &agent),
                   "cannot learn of a loaded code object");
    const int gpu = runtime_.number_of(agent);
    if (gpu >= 0)
      client_.ask(wire::ObjectLoaded{static_cast<uint64_t>(gpu), object({executable, code, 0})});
  }
}

void Kernels::forget(hsa_executable_t executable) {
  std::lock_guard lock(mutex_);
  auto [begin, end] = of_executable_.equal_range(executable.handle);
  for (auto entry = begin; entry != end; ++entry) {
    const auto kernel = kernels_.find(entry->second);
    if (kernel == kernels_.end())
      continue;
    if (kernel->second->executable.handle)
      runtime_.core.hsa_executable_destroy_fn(kernel->second->executable);
    kernels_.erase(kernel);
  }
  of_executable_.erase(begin, end);
  const auto is_its = [&](const auto &entry) { return entry.first.first == executable.handle; };
  std::erase_if(objects_, is_its);
  std::erase_if(copies_, is_its);
  generation_.fetch_add(1, std::memory_order_release);
}

std::unique_ptr<Kernel> Kernels::make(unsigned gpu, uint64_t kernel_object) {
  const Loaded loaded = loaded_around(kernel_object);
  of_executable_.emplace(loaded.executable.handle, kernel_object);
  auto kernel = std::make_unique<Kernel>();
  const auto answer = client_.ask(wire::FindKernel{gpu, object(loaded), kernel_object - loaded.delta});
  kernel->row = answer.row;
  kernel->arguments = answer.arguments;
  kernel->delta = loaded.delta;
  if (!answer.object.empty()) {
    try {
      load(*kernel, gpu, loaded, answer);
    } catch (const std::exception &problem) {
      faults_.tell(answer.name + ": " + problem.what());
    }
  }
  return kernel;
}

// Return the code object of the program that has a kernel at an address.
Kernels::Loaded Kernels::loaded_around(uint64_t address) {
  struct Search {
    Kernels &self;
    uint64_t address;
    LoadedCode code{};
  } search{*this, address};
  hsa_executable_t executable{};
  const auto status =
      runtime_.loader.hsa_ven_amd_loader_query_executable(reinterpret_cast<const void *>(address), &executable);
  if (status != HSA_STATUS_SUCCESS)
    throw Failure("a kernel is launched that is in no code object the runtime has loaded");
  runtime_.check(runtime_.loader.hsa_ven_amd_loader_executable_iterate_loaded_code_objects(
                     executable,
                     [](hsa_executable_t, LoadedCode code, void *data) {
                       auto &search = *static_cast<Search *>(data);
                       const auto get = search.self.runtime_.loader.hsa_ven_amd_loader_loaded_code_object_get_info;
                       uint64_t base = 0, size = 0;
                       get(code, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_BASE, &base);
                       get(code, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_SIZE, &size);
                       if (search.address - base < size)
                         search.code = code;
                       return HSA_STATUS_SUCCESS;
                     },
                     &search),
                 "cannot list the code objects of an executable");
  if (!search.code.handle)
    throw Failure("a kernel is launched that is in no code object the runtime has loaded");
  Loaded loaded{executable, search.code, 0};
  runtime_.check(runtime_.loader.hsa_ven_amd_loader_loaded_code_object_get_info(
                     search.code, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_DELTA, &loaded.delta),
                 "cannot learn of a loaded code object");
  return loaded;
}

// Return the number that the service gave a code object.
uint64_t Kernels::object(const Loaded &loaded) {
  const auto key = std::pair(loaded.executable.handle, loaded.code.handle);
  const auto known = objects_.find(key);
  if (known != objects_.end())
    return known->second;
  const auto get = [&](hsa_ven_amd_loader_loaded_code_object_info_t what, void *to) {
    runtime_.check(runtime_.loader.hsa_ven_amd_loader_loaded_code_object_get_info(loaded.code, what, to),
                   "cannot learn of a loaded code object");
  };
  uint32_t length = 0;
  get(HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_URI_LENGTH, &length);
  std::string uri(length, '\0');
  get(HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_URI, uri.data());
  const auto copy = copies_.find(key);
  const std::string bytes = copy == copies_.end() ? contents(loaded.code) : std::move(copy->second);
  const uint64_t number = client_.ask(wire::SendObject{uri, bytes});
  if (copy != copies_.end())
    copies_.erase(copy);
  return objects_[key] = number;
}

// Return the bytes of a code object in the program's memory; empty if it is in a file.
std::string Kernels::contents(LoadedCode code) {
  const auto get = [&](hsa_ven_amd_loader_loaded_code_object_info_t what, void *to) {
    runtime_.check(runtime_.loader.hsa_ven_amd_loader_loaded_code_object_get_info(code, what, to),
                   "cannot learn of a loaded code object");
  };
  uint32_t storage = 0;
  get(HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_CODE_OBJECT_STORAGE_TYPE, &storage);
  if (storage != HSA_VEN_AMD_LOADER_CODE_OBJECT_STORAGE_TYPE_MEMORY)
    return {};
  uint64_t base = 0, size = 0;
  get(HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_CODE_OBJECT_STORAGE_MEMORY_BASE, &base);
  get(HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_CODE_OBJECT_STORAGE_MEMORY_SIZE, &size);
  return read_safely(base, size);
}

// Load the patched kernel with the runtime's own loader, beside the original.
void Kernels::load(Kernel &kernel, unsigned gpu, const Loaded &loaded, const wire::FindKernelAnswer &answer) {
  const auto &core = runtime_.core;
  const hsa_agent_t agent = runtime_.gpus().at(gpu);
  hsa_profile_t profile{};
  runtime_.check(core.hsa_agent_get_info_fn(agent, HSA_AGENT_INFO_PROFILE, &profile), "cannot ask for the profile");
  hsa_executable_symbol_t original{};
  runtime_.check(core.hsa_executable_get_symbol_by_name_fn(loaded.executable, answer.symbol.c_str(), &agent, &original),
                 "the original object lacks the kernel");
  hsa_executable_t executable{};
  runtime_.check(
      core.hsa_executable_create_alt_fn(profile, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, nullptr, &executable),
      "cannot make an executable");
  hsa_code_object_reader_t reader{};
  try {
    const auto define = [&](const char *symbol, uint64_t address) {
      runtime_.check(core.hsa_executable_agent_global_variable_define_fn(executable, agent, symbol,
                                                                         reinterpret_cast<void *>(address)),
                     "cannot define a variable");
    };
    define("luthier.original", loaded.delta);
    std::vector<uint64_t> blocks;
    for (const std::string &symbol : answer.blocks) {
      blocks.push_back(block(gpu, symbol));
      define(symbol.c_str(), blocks.back());
    }
    // The loader keeps pointers to the file for debuggers, as long as the executable lives.
    auto *file = new std::string(answer.object);
    runtime_.check(core.hsa_code_object_reader_create_from_memory_fn(file->data(), file->size(), &reader),
                   "cannot read the patched object");
    runtime_.check(core.hsa_executable_load_agent_code_object_fn(executable, agent, reader, nullptr, nullptr),
                   "the runtime cannot load the patched object");
    runtime_.check(core.hsa_executable_freeze_fn(executable, nullptr), "cannot freeze the patched object");
    hsa_executable_symbol_t symbol{};
    runtime_.check(core.hsa_executable_get_symbol_by_name_fn(executable, answer.symbol.c_str(), &agent, &symbol),
                   "the patched object lacks its kernel");
    uint64_t patched = 0;
    const auto get = core.hsa_executable_symbol_get_info_fn;
    runtime_.check(get(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &patched), "no patched kernel");
    const auto size = [&](hsa_executable_symbol_info_t what) {
      uint32_t before = 0, after = 0;
      runtime_.check(get(original, what, &before), "the size of a kernel's memory is not known");
      runtime_.check(get(symbol, what, &after), "the size of a kernel's memory is not known");
      return after > before ? after - before : 0; // the packet has what the launch adds to it
    };
    kernel.more_group = size(HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE);
    kernel.more_private = size(HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE);
    client_.ask(wire::Loaded{answer.row, loaded_around(patched).delta, loaded.delta, blocks});
    kernel.executable = executable;
    kernel.limits = answer.limits;
    kernel.name = answer.name;
    kernel.patched = patched;
  } catch (...) {
    if (reader.handle)
      core.hsa_code_object_reader_destroy_fn(reader);
    core.hsa_executable_destroy_fn(executable);
    throw;
  }
  core.hsa_code_object_reader_destroy_fn(reader);
}

// Return the address of a block of variables on a GPU.
uint64_t Kernels::block(unsigned gpu, const std::string &symbol) {
  auto &address = blocks_[{gpu, symbol}];
  if (address)
    return address;
  const wire::FindBlockAnswer file = client_.ask(wire::FindBlock{gpu, symbol});
  void *memory = mmap(nullptr, file.size, PROT_READ | PROT_WRITE, MAP_SHARED, file.memory.fd, 0);
  close(file.memory.fd);
  if (memory == MAP_FAILED)
    throw Failure("cannot map a tool's variables");
  hsa_agent_t agent = runtime_.gpus().at(gpu);
  void *locked = nullptr;
  runtime_.check(runtime_.amd.hsa_amd_memory_lock_fn(memory, file.size, &agent, 1, &locked),
                 "a tool's variables cannot be made visible to the device");
  for (uint64_t offset : file.rings)
    if (offset <= file.size - sizeof(wire::Ring))
      rings_.add(reinterpret_cast<wire::Ring *>(static_cast<char *>(memory) + offset));
  return address = reinterpret_cast<uint64_t>(locked);
}

} // namespace luthier
