// HIP's functions that allocate and free memory, before HIP's own. They report to the virtual device and to tools what
// the program allocates, to the byte.
#include <mutex>
#include <set>

#include "blocks.h"
#include "in_flight.h"
#include "listeners.h"
#include "sanitizer.h"

namespace {

using namespace luthier;

// Devices whose memory begins with a page that belongs to no allocation.
struct Begun {
  std::mutex mutex;
  std::set<int> devices;
};

Begun &begun() {
  static Begun *const made = new Begun; // never destroyed: programs ask for memory while they end
  return *made;
}

// Return whether memory of this kind is unwritten when HIP returns it.
bool is_fresh(Kind kind) { return kind == Kind::kDevice || kind == Kind::kManaged; }

// Put a page that belongs to no allocation in front of the first memory of a device. Later memory has the zone of
// another allocation in front.
void begin_device() {
  int device = 0;
  if (next<int(int *)>("hipGetDevice")(&device) != kSuccess)
    return;
  {
    std::lock_guard lock(begun().mutex);
    if (!begun().devices.insert(device).second)
      return;
  }
  void *page = nullptr;
  if (next<int(void **, size_t)>("hipMalloc")(&page, kPage) == kSuccess && page)
    note_front(page);
}

// Allocate memory that is larger than the program asks for.
template <typename Make> int allocate(void **address, size_t size, Kind kind, Make make) {
  if (inside || !listeners::any() || !address || !size || size > SIZE_MAX - kZone)
    return make(size);
  Inside now;
  if (is_fresh(kind))
    begin_device();
  const int result = make(size + kZone);
  if (result != kSuccess || !*address)
    return result;
  const size_t reserved = size + kZone;
  // Pools allocate parts of pages.
  note(*address, {size, kind, 0, true, calls_here()},
       kind == Kind::kAsync ? reserved : (reserved + kPage - 1) / kPage * kPage);
  if (is_fresh(kind) && luthier_fresh)
    luthier_fresh(reinterpret_cast<uint64_t>(*address), size);
  return result;
}

// Report the result of a call of the program, and pass it on.
int pass(const char *function, const void *site, int result) {
  note_result(function, result, site);
  return result;
}

// Allocate memory of rows, by `make(rows)`, with one more row in each layer. HIP pads the rows.
template <typename Make> int allocate_rows(void **address, size_t *pitch, size_t rows, size_t layers, Make make) {
  if (inside || !listeners::any() || !address || !pitch || !rows || !layers || rows == SIZE_MAX)
    return make(rows);
  Inside now;
  begin_device();
  const int result = make(rows + 1);
  if (result != kSuccess || !*address)
    return result;
  const size_t size = *pitch * rows * layers, reserved = *pitch * (rows + 1) * layers;
  note(*address, {size, Kind::kDevice, 0, true, calls_here()}, (reserved + kPage - 1) / kPage * kPage);
  if (luthier_fresh)
    luthier_fresh(reinterpret_cast<uint64_t>(*address), size);
  return result;
}

// Call a function that allocates memory that is known only in pages.
template <typename... Types> int by_pages(const char *function, const void *site, Types... arguments) {
  const int result = next<int(Types...)>(function)(arguments...);
  if (!inside && listeners::any() && result == kSuccess)
    note_pages(function, site);
  return pass(function, site, result);
}

int give_back(void *address, const char *function) {
  const auto own = [&] { return next<int(void *)>(function)(address); };
  if (inside || !listeners::any() || !address)
    return own();
  // Kernels that use it may still run: HIP waits for them.
  {
    Inside now;
    next<int()>("hipDeviceSynchronize")();
  }
  all_streams_are_done();
  if (free_later(address))
    return kSuccess;
  return is_wrong(address) ? kInvalidValue : own();
}

} // namespace

extern "C" {

int hipMalloc(void **address, size_t size) {
  return pass("hipMalloc", __builtin_return_address(0), allocate(address, size, Kind::kDevice, [&](size_t room) {
                return next<int(void **, size_t)>("hipMalloc")(address, room);
              }));
}

int hipExtMallocWithFlags(void **address, size_t size, unsigned flags) {
  constexpr unsigned kFineGrained = 1, kUncached = 3; // hipDeviceMallocFinegrained and hipDeviceMallocUncached
  const int result = allocate(address, size, Kind::kDevice, [&](size_t room) {
    return next<int(void **, size_t, unsigned)>("hipExtMallocWithFlags")(address, room, flags);
  });
  if (!inside && luthier_fine_grained && result == kSuccess && (flags == kFineGrained || flags == kUncached))
    luthier_fine_grained(reinterpret_cast<uint64_t>(*address));
  return pass("hipExtMallocWithFlags", __builtin_return_address(0), result);
}

int hipMallocManaged(void **address, size_t size, unsigned flags) {
  return pass("hipMallocManaged", __builtin_return_address(0),
              allocate(address, size, Kind::kManaged, [&](size_t room) {
                return next<int(void **, size_t, unsigned)>("hipMallocManaged")(address, room, flags);
              }));
}

int hipHostMalloc(void **address, size_t size, unsigned flags) {
  return pass("hipHostMalloc", __builtin_return_address(0), allocate(address, size, Kind::kHost, [&](size_t room) {
                return next<int(void **, size_t, unsigned)>("hipHostMalloc")(address, room, flags);
              }));
}

int hipMallocHost(void **address, size_t size) {
  return pass("hipMallocHost", __builtin_return_address(0), allocate(address, size, Kind::kHost, [&](size_t room) {
                return next<int(void **, size_t)>("hipMallocHost")(address, room);
              }));
}

int hipHostAlloc(void **address, size_t size, unsigned flags) {
  return pass("hipHostAlloc", __builtin_return_address(0), allocate(address, size, Kind::kHost, [&](size_t room) {
                return next<int(void **, size_t, unsigned)>("hipHostAlloc")(address, room, flags);
              }));
}

int hipMemAllocHost(void **address, size_t size) {
  return pass("hipMemAllocHost", __builtin_return_address(0), allocate(address, size, Kind::kHost, [&](size_t room) {
                return next<int(void **, size_t)>("hipMemAllocHost")(address, room);
              }));
}

int hipMallocPitch(void **address, size_t *pitch, size_t width, size_t height) {
  return pass("hipMallocPitch", __builtin_return_address(0), allocate_rows(address, pitch, height, 1, [&](size_t rows) {
                return next<int(void **, size_t *, size_t, size_t)>("hipMallocPitch")(address, pitch, width, rows);
              }));
}

int hipMemAllocPitch(void **address, size_t *pitch, size_t width, size_t height, unsigned element) {
  return pass("hipMemAllocPitch", __builtin_return_address(0),
              allocate_rows(address, pitch, height, 1, [&](size_t rows) {
                return next<int(void **, size_t *, size_t, size_t, unsigned)>("hipMemAllocPitch")(address, pitch, width,
                                                                                                  rows, element);
              }));
}

int hipMalloc3D(Pitched *made, Box box) {
  const auto make = [&](size_t rows) {
    const int result = next<int(Pitched *, Box)>("hipMalloc3D")(made, {box.width, rows, box.depth});
    if (result == kSuccess && made)
      made->height = box.height;
    return result;
  };
  return pass(
      "hipMalloc3D", __builtin_return_address(0),
      allocate_rows(made ? &made->address : nullptr, made ? &made->pitch : nullptr, box.height, box.depth, make));
}

#define BY_PAGES(...) by_pages(__func__, __builtin_return_address(0), __VA_ARGS__)

int hipMallocArray(void **array, const void *channels, size_t width, size_t height, unsigned flags) {
  return BY_PAGES(array, channels, width, height, flags);
}
int hipMalloc3DArray(void **array, const void *channels, Box box, unsigned flags) {
  return BY_PAGES(array, channels, box, flags);
}
int hipArrayCreate(void **array, const void *wanted) { return BY_PAGES(array, wanted); }
int hipArray3DCreate(void **array, const void *wanted) { return BY_PAGES(array, wanted); }
int hipMallocMipmappedArray(void **array, const void *channels, Box box, unsigned levels, unsigned flags) {
  return BY_PAGES(array, channels, box, levels, flags);
}
int hipMipmappedArrayCreate(void **array, void *wanted, unsigned levels) { return BY_PAGES(array, wanted, levels); }
int hipMemMap(void *address, size_t size, size_t offset, void *handle, unsigned long long flags) {
  return BY_PAGES(address, size, offset, handle, flags);
}
int hipHostRegister(void *address, size_t size, unsigned flags) {
  const int result = BY_PAGES(address, size, flags);
  if (result == kSuccess)
    in_flight::registered(address, size);
  return result;
}
// HIP waits for the device.
int hipHostUnregister(void *address) {
  const int result =
      pass("hipHostUnregister", __builtin_return_address(0), next<int(void *)>("hipHostUnregister")(address));
  in_flight::unregistered(address);
  return result;
}
int hipExternalMemoryGetMappedBuffer(void **address, void *memory, const void *wanted) {
  return BY_PAGES(address, memory, wanted);
}

int hipMallocAsync(void **address, size_t size, void *stream) {
  return pass("hipMallocAsync", __builtin_return_address(0), allocate(address, size, Kind::kAsync, [&](size_t room) {
                return next<int(void **, size_t, void *)>("hipMallocAsync")(address, room, stream);
              }));
}

int hipMallocFromPoolAsync(void **address, size_t size, void *pool, void *stream) {
  return pass(
      "hipMallocFromPoolAsync", __builtin_return_address(0), allocate(address, size, Kind::kAsync, [&](size_t room) {
        return next<int(void **, size_t, void *, void *)>("hipMallocFromPoolAsync")(address, room, pool, stream);
      }));
}

int hipFree(void *address) { return pass("hipFree", __builtin_return_address(0), give_back(address, "hipFree")); }
int hipHostFree(void *address) {
  return pass("hipHostFree", __builtin_return_address(0), give_back(address, "hipHostFree"));
}
int hipFreeHost(void *address) {
  return pass("hipFreeHost", __builtin_return_address(0), give_back(address, "hipFreeHost"));
}

// Earlier work of the stream may still use the memory, so wait for it.
int hipFreeAsync(void *address, void *stream) {
  if (!inside && listeners::any() && address) {
    in_flight::freed_in(stream, address);
    {
      Inside now;
      next<int(void *)>("hipStreamSynchronize")(stream);
    }
    look_at_copies(stream);
    if (free_later(address))
      return kSuccess;
    if (is_wrong(address))
      return kInvalidValue;
  }
  return next<int(void *, void *)>("hipFreeAsync")(address, stream);
}

// Frees all memory of the device.
int hipDeviceReset() {
  const auto is_hips = [](Kind kind) { return kind <= Kind::kAsync; };
  forget_all(is_hips, false);
  {
    std::lock_guard lock(begun().mutex);
    begun().devices.clear();
  }
  in_flight::all_synchronised();
  return next<int()>("hipDeviceReset")();
}
}
