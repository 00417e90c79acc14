// OpenCL's functions that allocate and free memory, before those of its loader.
//
// A buffer has no address that the program can see, and often no memory before it is used. The size tells which of
// ROCr's allocations it is.
#include <map>
#include <mutex>

#include "listeners.h"
#include "opencl_buffers.h"
#include "sanitizer.h"

namespace {

using namespace luthier;

constexpr uint64_t kUseHostPointer = 1 << 3; // CL_MEM_USE_HOST_PTR
constexpr uint32_t kReferences = 0x1105;     // CL_MEM_REFERENCE_COUNT

struct Buffer {
  size_t size;
  CallTrace calls;
  bool is_placed = false;
};

struct Buffers {
  std::mutex mutex;
  std::map<void *, Buffer> live; // by their handles
};

Buffers &buffers() {
  static Buffers *const made = new Buffers; // never destroyed: programs make buffers while they end
  return *made;
}

thread_local Buffer *in_creation = nullptr;

// Make an object whose memory is known only in pages.
template <typename Create> void *create_by_pages(const char *function, const void *site, Create own) {
  void *const handle = own();
  if (!inside && listeners::any() && handle)
    note_pages(function, site);
  return handle;
}

template <typename Create> void *create(uint64_t flags, size_t size, const void *site, Create own) {
  if (inside || !listeners::any())
    return own();
  // Beside it in its pages there may be memory that the runtime uses by right, for a copy.
  if (flags & kUseHostPointer)
    return create_by_pages("clCreateBuffer with CL_MEM_USE_HOST_PTR", site, own);
  Buffer made{size, calls_here()};
  in_creation = &made;
  void *const handle = own();
  in_creation = nullptr;
  if (handle) {
    Buffers &all = buffers();
    std::lock_guard lock(all.mutex);
    all.live.insert_or_assign(handle, made);
  }
  return handle;
}

template <typename... Types> void *by_pages(const char *function, const void *site, Types... arguments) {
  return create_by_pages(function, site,
                         [&] { return next<void *(Types...)>(function, kOpenClLibrary)(arguments...); });
}

} // namespace

bool luthier::opencl::is_buffer(Block &block) {
  Buffers &all = buffers();
  std::lock_guard lock(all.mutex);
  Buffer *chosen = in_creation && in_creation->size == block.size ? in_creation : nullptr;
  for (auto each = all.live.begin(); each != all.live.end() && (!chosen || chosen->is_placed); ++each)
    if (each->second.size == block.size && (!chosen || !each->second.is_placed))
      chosen = &each->second;
  if (!chosen)
    return false;
  // A second one is what a buffer is mapped by.
  block.is_programs = !chosen->is_placed;
  block.calls = chosen->calls;
  chosen->is_placed = true;
  return true;
}

extern "C" {

void *clCreateBuffer(void *context, uint64_t flags, size_t size, void *host, int *error) {
  return create(flags, size, __builtin_return_address(0), [&] {
    return next<void *(void *, uint64_t, size_t, void *, int *)>("clCreateBuffer", kOpenClLibrary)(context, flags, size,
                                                                                                   host, error);
  });
}

void *clCreateBufferWithProperties(void *context, const uint64_t *properties, uint64_t flags, size_t size, void *host,
                                   int *error) {
  return create(flags, size, __builtin_return_address(0), [&] {
    return next<void *(void *, const uint64_t *, uint64_t, size_t, void *, int *)>(
        "clCreateBufferWithProperties", kOpenClLibrary)(context, properties, flags, size, host, error);
  });
}

#define BY_PAGES(...) by_pages(__func__, __builtin_return_address(0), __VA_ARGS__)

void *clCreateImage(void *context, uint64_t flags, const void *format, const void *wanted, void *host, int *error) {
  return BY_PAGES(context, flags, format, wanted, host, error);
}
void *clCreateImageWithProperties(void *context, const uint64_t *properties, uint64_t flags, const void *format,
                                  const void *wanted, void *host, int *error) {
  return BY_PAGES(context, properties, flags, format, wanted, host, error);
}
void *clCreateImage2D(void *context, uint64_t flags, const void *format, size_t width, size_t height, size_t pitch,
                      void *host, int *error) {
  return BY_PAGES(context, flags, format, width, height, pitch, host, error);
}
void *clCreateImage3D(void *context, uint64_t flags, const void *format, size_t width, size_t height, size_t depth,
                      size_t row_pitch, size_t slice_pitch, void *host, int *error) {
  return BY_PAGES(context, flags, format, width, height, depth, row_pitch, slice_pitch, host, error);
}
void *clCreatePipe(void *context, uint64_t flags, uint32_t packet, uint32_t packets, const intptr_t *properties,
                   int *error) {
  return BY_PAGES(context, flags, packet, packets, properties, error);
}

int clReleaseMemObject(void *handle) {
  uint32_t references = 0;
  if (handle && listeners::any() &&
      next<int(void *, uint32_t, size_t, void *, size_t *)>("clGetMemObjectInfo", kOpenClLibrary)(
          handle, kReferences, sizeof references, &references, nullptr) == kSuccess &&
      references == 1) {
    Buffers &all = buffers();
    std::lock_guard lock(all.mutex);
    all.live.erase(handle);
  }
  return next<int(void *)>("clReleaseMemObject", kOpenClLibrary)(handle);
}

void *clSVMAlloc(void *context, uint64_t flags, size_t size, uint32_t alignment) {
  auto *own = next<void *(void *, uint64_t, size_t, uint32_t)>("clSVMAlloc", kOpenClLibrary);
  if (inside || !listeners::any() || !size || size > SIZE_MAX - kZone)
    return own(context, flags, size, alignment);
  Inside now;
  const Block block{size, Kind::kSvm, reinterpret_cast<uint64_t>(context), true, calls_here()};
  void *const given =
      allocate_with_zone(block, kPage, [&](size_t room) { return own(context, flags, room, alignment); });
  // Memory is released to the context later than the program releases it.
  if (given)
    next<int(void *)>("clRetainContext", kOpenClLibrary)(context);
  return given;
}

void clSVMFree(void *context, void *address) {
  if (!inside && listeners::any() && address && (free_later(address) || is_wrong(address)))
    return;
  next<void(void *, void *)>("clSVMFree", kOpenClLibrary)(context, address);
}

// The time when this is done is not known.
int clEnqueueSVMFree(void *queue, uint32_t count, void **addresses, void *callback, void *data, uint32_t waits,
                     void *const *events, void **event) {
  if (!inside && listeners::any() && !callback && addresses)
    for (uint32_t number = 0; number < count; ++number)
      forget_live(addresses[number]);
  return next<int(void *, uint32_t, void **, void *, void *, uint32_t, void *const *, void **)>(
      "clEnqueueSVMFree", kOpenClLibrary)(queue, count, addresses, callback, data, waits, events, event);
}
}
