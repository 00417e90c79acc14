// HSA's functions that allocate and free memory, before ROCr's own, and what OpenCL's runtime allocates with them.
//
// HIP's runtime also calls them, for the program and for itself; what the program allocates with HIP is known before.
#include <mutex>
#include <set>
#include <string>

#include "blocks.h"
#include "call_site.h"
#include "listeners.h"
#include "opencl_buffers.h"
#include "sanitizer.h"

namespace {

using namespace luthier;

constexpr int kInvalidAllocation = 0x1003, kNotInitialized = 0x100B; // hsa_status_t
constexpr int kRegionFlags = 1, kPoolFlags = 1;                      // which information
constexpr uint32_t kKernarg = 1;                                     // a flag of both
constexpr size_t kKernargLoad = 64;                                  // bytes that one load of arguments may read

// Pools and regions whose memory begins with a page that belongs to no allocation.
struct Begun {
  std::mutex mutex;
  std::set<uint64_t> pools;
};

Begun &begun() {
  static Begun *const made = new Begun; // never destroyed: programs ask for memory while they end
  return *made;
}

enum class Caller { kProgram, kOpenMp, kOpenCl, kOther };

Caller caller_of(const void *site) {
  const std::string library = library_of(site);
  const auto is = [&](std::string_view name) { return library.compare(0, name.size(), name) == 0; };
  if (is("libamdocl64"))
    return Caller::kOpenCl;
  if (is("libgomp") || is("libomp"))
    return Caller::kOpenMp;
  return is_runtime(library) ? Caller::kOther : Caller::kProgram;
}

// Where a function of HSA allocates memory: a pool or a region.
struct Source {
  uint64_t handle;
  const char *information;
  int flags;

  bool is_for_arguments() const {
    uint32_t its = 0;
    return next<int(uint64_t, int, void *)>(information, kHsaLibrary)(handle, flags, &its) == kSuccess &&
           its & kKernarg;
  }
};

template <typename Make> int allocate(Source source, void **address, size_t size, const void *site, Make make) {
  if (inside || !listeners::any() || !address || !size || size > SIZE_MAX - kZone)
    return make(size, address);
  Block block{size, Kind::kHsa};
  const Caller caller = caller_of(site);
  if (caller == Caller::kOther || (caller == Caller::kOpenCl && !opencl::is_buffer(block)))
    return make(size, address);
  if (caller != Caller::kOpenCl)
    block.calls = calls_here();
  if (caller == Caller::kOpenMp)
    note_pages("OpenMP's map", site);
  block.is_programs = block.is_programs && caller != Caller::kOpenMp;
  // Compilers load arguments with instructions that may read beyond them.
  if (source.is_for_arguments()) {
    block.size = (size + kKernargLoad - 1) / kKernargLoad * kKernargLoad;
  } else {
    std::lock_guard lock(begun().mutex);
    void *page = nullptr;
    if (begun().pools.insert(source.handle).second && make(kPage, &page) == kSuccess && page)
      note_front(page);
  }
  int status = kSuccess;
  void *const given = allocate_with_zone(block, kPage, [&](size_t room) {
    void *made = nullptr;
    status = make(room, &made);
    return status == kSuccess ? made : nullptr;
  });
  if (given)
    *address = given;
  return status;
}

// Call a function that allocates memory that is known only in pages.
template <typename... Types> int by_pages(const char *function, const void *site, Types... arguments) {
  const int status = next<int(Types...)>(function, kHsaLibrary)(arguments...);
  if (!inside && listeners::any() && status == kSuccess && caller_of(site) == Caller::kProgram)
    note_pages(function, site);
  return status;
}

int give_back(const char *function, void *address, const void *site) {
  if (!inside && listeners::any() && address && caller_of(site) != Caller::kOther) {
    if (free_later(address))
      return kSuccess;
    if (is_wrong(address))
      return kInvalidAllocation;
  }
  return next<int(void *)>(function, kHsaLibrary)(address);
}

} // namespace

extern "C" {

int hsa_amd_memory_pool_allocate(uint64_t pool, size_t size, uint32_t flags, void **address) {
  auto *own = next<int(uint64_t, size_t, uint32_t, void **)>("hsa_amd_memory_pool_allocate", kHsaLibrary);
  return allocate({pool, "hsa_amd_memory_pool_get_info", kPoolFlags}, address, size, __builtin_return_address(0),
                  [&](size_t room, void **made) { return own(pool, room, flags, made); });
}

int hsa_memory_allocate(uint64_t region, size_t size, void **address) {
  auto *own = next<int(uint64_t, size_t, void **)>("hsa_memory_allocate", kHsaLibrary);
  return allocate({region, "hsa_region_get_info", kRegionFlags}, address, size, __builtin_return_address(0),
                  [&](size_t room, void **made) { return own(region, room, made); });
}

int hsa_amd_memory_pool_free(void *address) {
  return give_back("hsa_amd_memory_pool_free", address, __builtin_return_address(0));
}

int hsa_memory_free(void *address) { return give_back("hsa_memory_free", address, __builtin_return_address(0)); }

#define BY_PAGES(...) by_pages(__func__, __builtin_return_address(0), __VA_ARGS__)

int hsa_amd_memory_lock(void *host, size_t size, const uint64_t *agents, int count, void **address) {
  return BY_PAGES(host, size, agents, count, address);
}
int hsa_amd_memory_lock_to_pool(void *host, size_t size, const uint64_t *agents, int count, uint64_t pool,
                                uint32_t flags, void **address) {
  return BY_PAGES(host, size, agents, count, pool, flags, address);
}
int hsa_amd_ipc_memory_attach(const void *handle, size_t size, uint32_t count, const uint64_t *agents, void **address) {
  return BY_PAGES(handle, size, count, agents, address);
}
int hsa_amd_vmem_map(void *address, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
  return BY_PAGES(address, size, offset, handle, flags);
}

// OpenCL's runtime forgets the file of a code object that is loaded. What has its symbols is kept.
int hsa_code_object_reader_create_from_memory(const void *code, size_t size, void *reader) {
  if (listeners::any() && code && caller_of(__builtin_return_address(0)) == Caller::kOpenCl) {
    static auto *const files = new std::set<std::string>;
    static auto *const mutex = new std::mutex; // never destroyed, both: programs load code while they end
    std::lock_guard lock(*mutex);
    code = files->emplace(static_cast<const char *>(code), size).first->data();
  }
  return next<int(const void *, size_t, void *)>("hsa_code_object_reader_create_from_memory", kHsaLibrary)(code, size,
                                                                                                           reader);
}

// The last call frees all memory.
int hsa_shut_down() {
  const int status = next<int()>("hsa_shut_down", kHsaLibrary)();
  uint16_t version;
  if (next<int(int, void *)>("hsa_system_get_info", kHsaLibrary)(0, &version) == kNotInitialized) {
    forget_all([](Kind kind) { return kind == Kind::kHsa; }, true);
    std::lock_guard lock(begun().mutex);
    begun().pools.clear();
  }
  return status;
}
}
