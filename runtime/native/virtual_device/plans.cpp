#include "plans.h"

#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <optional>
#include <sys/uio.h>
#include <unistd.h>

#include "save_area.h"

namespace luthier {

using namespace layout;

namespace {

constexpr const char *kInNoMemory = "the kernel object of a dispatch lies in no memory of the device";

// Read memory that may be unmapped or change meanwhile.
bool read_safely(void *to, uint64_t from, size_t size) {
  iovec local{to, size}, remote{reinterpret_cast<void *>(from), size};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

struct Loaded {
  uint64_t address = 0; // what was added to the file's virtual addresses
  std::string uri;      // file:///path#offset=…&size=… or memory://pid#offset=…&size=…
};

// Return the object with the nearest lower load address, from the list that ROCr keeps for debuggers: an r_debug whose
// names are URIs.
std::optional<Loaded> find_loaded(uint64_t address) {
  const void *debug = dlsym(RTLD_DEFAULT, "_amdgpu_r_debug");
  if (!debug) // ROCr was loaded for a library alone, as OpenCL's loader does
    if (void *rocr = dlopen("libhsa-runtime64.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
      debug = dlsym(rocr, "_amdgpu_r_debug");
      dlclose(rocr);
    }
  r_debug head{};
  if (!debug || !read_safely(&head, reinterpret_cast<uint64_t>(debug), sizeof head))
    return std::nullopt;
  link_map best{}, entry{};
  uint64_t next = reinterpret_cast<uint64_t>(head.r_map);
  for (int left = 1 << 20; next && left > 0 && read_safely(&entry, next, sizeof entry); --left) {
    if (entry.l_addr <= address && entry.l_addr >= best.l_addr && entry.l_name)
      best = entry;
    next = reinterpret_cast<uint64_t>(entry.l_next);
  }
  Loaded loaded;
  loaded.address = best.l_addr;
  char letter = 0;
  for (uint64_t at = reinterpret_cast<uint64_t>(best.l_name); best.l_name && loaded.uri.size() < 8192; ++at) {
    if (!read_safely(&letter, at, 1))
      return std::nullopt;
    if (!letter)
      return loaded;
    loaded.uri += letter;
  }
  return std::nullopt;
}

// Return the bytes that a memory:// URI names; empty if they are no longer there.
std::string read_object(const std::string &uri) {
  const auto value = [&](const char *key) {
    const size_t at = uri.find(key);
    return at == std::string::npos ? 0 : std::strtoull(uri.c_str() + at + std::strlen(key), nullptr, 0);
  };
  const uint64_t offset = value("#offset="), size = value("&size=");
  if (uri.rfind("memory://", 0) != 0 || !offset || !size || size > (uint64_t{1} << 32))
    return {};
  std::string object(size, '\0');
  return read_safely(object.data(), offset, size) ? object : std::string();
}

} // namespace

// A debugger's breakpoints do not count.
bool Plans::is_same(const char *bytes, const char *copy, uint64_t size) const {
  if (std::memcmp(bytes, copy, size) == 0)
    return true;
  if (!debugging_.is_attached())
    return false;
  uint32_t now, planned;
  for (uint64_t at = 0; at + sizeof now <= size; at += sizeof now) {
    std::memcpy(&now, bytes + at, sizeof now);
    std::memcpy(&planned, copy + at, sizeof planned);
    if (now != planned && !trap_of(now))
      return false;
  }
  return true;
}

// Code may have been replaced by other code at the same address, or by less: it must be what the plan was made for.
bool Plans::is_current(const char *plan, unsigned node, uint64_t kernel) const {
  const uint64_t base = kernel + get(plan, plan::code_delta);
  const auto table = memory_.table(node);
  const char *copy = pointer<const char *>(plan, plan::code_copy);
  const char *check = pointer<const char *>(plan, plan::checks);
  for (uint64_t left = get(plan, plan::check_count); left > 0; --left, check += check::kSize) {
    const uint64_t offset = get(check, check::offset), size = get(check, check::size), at = base + offset;
    const char *bytes = reinterpret_cast<const char *>(at);
    if (table->host(at, size) != bytes || !is_same(bytes, copy + offset, size))
      return false;
  }
  return true;
}

const char *Plans::find(unsigned gpu, unsigned node, uint64_t kernel) {
  // Also if there is a plan: the code may have been unloaded since.
  const char *descriptor = reinterpret_cast<const char *>(kernel);
  if (memory_.host(node, kernel, kDescriptorSize) != descriptor)
    throw Failure(kInNoMemory);
  const uint64_t key = kernel | uint64_t{gpu} << 56;
  std::lock_guard lock(mutex_);
  if (const auto entry = plans_.find(key); entry != plans_.end()) {
    const Made &known = entry->second;
    if (std::memcmp(known.descriptor.data(), descriptor, kDescriptorSize) == 0 &&
        is_current(known.plan, node, kernel) && (!known.module || ProgramMemory::get().has_module(known.module)))
      return known.plan;
  }
  Made made;
  std::memcpy(made.descriptor.data(), descriptor, kDescriptorSize);
  make(made, gpu, node, kernel);
  plans_[key] = made;
  return made.plan;
}

uint64_t Plans::find_outside(unsigned gpu, const char *plan, uint64_t code, uint64_t address) {
  const auto loaded = find_loaded(address);
  const auto around = memory_.find(address);
  if (!loaded || !around)
    return Host::kNowhere;
  const std::string object = read_object(loaded->uri);
  wire::Outside where{get(plan, plan::kernel), gpu, code, address, loaded->address, true, loaded->uri, object};
  if (!object.empty() || loaded->uri.rfind("file://", 0) == 0)
    if (const uint64_t record = service_.ask(where); record != Host::kNowhere)
      return record;
  // The file cannot be read, or there is none: return the memory around it.
  where.load_address = around->address;
  where.is_file = false;
  where.uri = "";
  where.contents = {reinterpret_cast<const char *>(around->address), around->size};
  return service_.ask(where);
}

// Read the variables of a kernel's code object, if it is still in memory.
void Plans::know(Made &made, uint64_t module, const std::vector<wire::Bounds> &variables) const {
  const auto around = memory_.find(module);
  if (variables.empty() || !around)
    return;
  made.module = module;
  std::vector<Extent> extents;
  extents.reserve(variables.size());
  for (const wire::Bounds &bounds : variables)
    extents.push_back({bounds.address, bounds.size, bounds.reserved});
  if (!ProgramMemory::get().has_module(module))
    ProgramMemory::get().loaded(module, around->address + around->size, extents);
}

void Plans::make(Made &made, unsigned gpu, unsigned node, uint64_t kernel) {
  const std::string_view descriptor(reinterpret_cast<const char *>(kernel), kDescriptorSize);
  if (const auto loaded = find_loaded(kernel)) {
    const std::string object = read_object(loaded->uri);
    if (!object.empty() || loaded->uri.rfind("file://", 0) == 0) {
      const wire::PlanAnswer answer =
          service_.ask(wire::Plan{gpu, kernel, loaded->address, true, descriptor, loaded->uri, object});
      const auto *plan = reinterpret_cast<const char *>(answer.address);
      if (plan && is_current(plan, node, kernel)) {
        made.plan = plan;
        know(made, loaded->address, answer.variables);
        return;
      }
    }
  }
  // The file cannot be read, or is another one: use the memory around it.
  const auto around = memory_.find(kernel);
  if (!around)
    throw Failure(kInNoMemory);
  const auto bytes = std::string_view(reinterpret_cast<const char *>(around->address), around->size);
  made.plan = reinterpret_cast<const char *>(
      service_.ask(wire::Plan{gpu, kernel, around->address, false, descriptor, "", bytes}).address);
  if (!made.plan)
    throw Failure("there is no kernel at the address of the kernel object");
}

} // namespace luthier
