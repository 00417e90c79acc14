// HIP's functions that launch, copy and wait, before HIP's own. Finds errors that they return, failed launches that the
// program does not check, copies beyond allocations, and streams that are destroyed while they work.
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "agreement.h"
#include "call_site.h"
#include "in_flight.h"
#include "sanitizer.h"

extern "C" {
// Of libluthier_kfd.so, which is loaded before.
void luthier_complain_of_call(uint64_t kind, uint64_t error, uint64_t offset, uint64_t address, uint64_t size,
                              uint64_t base, uint64_t extent, const char *function, const char *symbol,
                              const char *file) __attribute__((weak));
void luthier_complain_of_launch(const void *sighting, const char *function, const char *symbol, const char *file)
    __attribute__((weak));
void luthier_copies(uint64_t to, uint64_t from, uint64_t size, const char *function, const void *site)
    __attribute__((weak));
uint64_t luthier_undefined(uint64_t address, uint64_t size, uint64_t *first) __attribute__((weak));
}

namespace luthier {

namespace {

using wire::FindingKind;

constexpr int kNotReady = 600;
constexpr int kFileNotFound = 301;
constexpr int kNotFound = 500;

// Bytes that a call accesses, and the allocation that they begin in.
struct Reach {
  uint64_t address = 0, size = 0, base = 0, extent = 0;
};

void complain(FindingKind kind, const char *function, int error, const void *site, const Reach &reach = {}) {
  if (!luthier_complain_of_call)
    return;
  const CallSite at = call_site(site);
  std::string what = function;
  if (error != kSuccess)
    what += std::string(": ") + next<const char *(int)>("hipGetErrorName")(error);
  luthier_complain_of_call(static_cast<uint64_t>(kind), error, at.offset, reach.address, reach.size, reach.base,
                           reach.extent, what.c_str(), at.symbol, at.file);
}

// The resources that a kernel needs, and those of the device.
struct Demand {
  std::string kernel; // its symbol
  int lds = 0, items = 0, device_lds = 0, device_items = 0;
};

// The fields of hipFuncAttributes, complete.
struct FunctionAttributes {
  int binary_version, cache_mode;
  size_t constant, scratch;
  int most_dynamic_lds, most_items, registers, carveout, ptx_version;
  size_t lds;
};

// The parameters of a launch.
struct Asked {
  void *function; // a hipFunction_t, or the address that the host has for the kernel
  bool is_handle;
  Dim3 groups, items;
  uint64_t lds;
  bool is_cooperative = false;
  uint64_t most_groups = 0; // of a cooperative launch, that the device holds at once; 0: not known
};

// Return the resources that the kernel of a launch needs. HIP is asked before the launch: a call after a failed launch
// may hide the failure from the program.
const Demand &demand_of(const Asked &asked) {
  static auto *const known = new std::map<std::pair<int, void *>, Demand>;
  static auto *const mutex = new std::mutex; // never destroyed, both: programs launch while they end
  int device = 0;
  next<int(int *)>("hipGetDevice")(&device);
  std::lock_guard lock(*mutex);
  const auto [place, is_new] = known->try_emplace({device, asked.function});
  if (!is_new)
    return place->second;
  Demand &made = place->second;
  constexpr int kItems = 56, kLds = 74; // of hipDeviceAttribute_t
  const auto attribute = next<int(int *, int, int)>("hipDeviceGetAttribute");
  attribute(&made.device_items, kItems, device);
  attribute(&made.device_lds, kLds, device);
  const char *name = nullptr;
  if (asked.is_handle) {
    constexpr int kMostItems = 0, kOwnLds = 1; // of hipFunction_attribute
    const auto own = next<int(int *, int, void *)>("hipFuncGetAttribute");
    own(&made.items, kMostItems, asked.function);
    own(&made.lds, kOwnLds, asked.function);
    name = next<const char *(void *)>("hipKernelNameRef")(asked.function);
  } else {
    FunctionAttributes own{};
    if (next<int(FunctionAttributes *, const void *)>("hipFuncGetAttributes")(&own, asked.function) == kSuccess) {
      made.items = own.most_items;
      made.lds = static_cast<int>(own.lds);
    }
    name = next<const char *(const void *, void *)>("hipKernelNameRefByPtr")(asked.function, nullptr);
  }
  made.kernel = name ? name : "";
  return made;
}

// Return the number of work-groups of a cooperative launch that a device holds at once, from HIP; 0 if HIP fails.
uint64_t most_groups(const Asked &asked) {
  constexpr int kUnits = 63; // of hipDeviceAttribute_t: hipDeviceAttributeMultiprocessorCount
  int device = 0, units = 0, of_unit = 0;
  const auto items = static_cast<int>(asked.items.x * asked.items.y * asked.items.z);
  next<int(int *)>("hipGetDevice")(&device);
  next<int(int *, int, int)>("hipDeviceGetAttribute")(&units, kUnits, device);
  const char *const occupancy = asked.is_handle ? "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
                                                : "hipOccupancyMaxActiveBlocksPerMultiprocessor";
  next<int(int *, void *, int, size_t)>(occupancy)(&of_unit, asked.function, items, asked.lds);
  return uint64_t(std::max(units, 0)) * std::max(of_unit, 0);
}

// Report a launch that failed.
void complain(FindingKind kind, const char *function, int error, const void *site, const Asked &asked,
              const Demand &demand) {
  if (!luthier_complain_of_launch)
    return;
  const CallSite at = call_site(site);
  const auto &[groups, items] = std::pair(asked.groups, asked.items);
  wire::CallSighting call{};
  call.kind = static_cast<uint64_t>(kind);
  call.error = error;
  call.offset = at.offset;
  call.has_launch = true;
  call.groups_x = groups.x, call.groups_y = groups.y, call.groups_z = groups.z;
  call.items_x = items.x, call.items_y = items.y, call.items_z = items.z;
  call.lds = asked.lds;
  call.kernel_lds = demand.lds, call.kernel_items = demand.items;
  call.most_groups = asked.most_groups;
  call.device_lds = demand.device_lds, call.device_items = demand.device_items;
  const std::string what =
      std::string(function) + ": " + next<const char *(int)>("hipGetErrorName")(error) + ": " + demand.kernel;
  luthier_complain_of_launch(&call, what.c_str(), at.symbol, at.file);
}

// A launch of this thread that failed, and whose error the program has not read.
struct Pending {
  const char *function = nullptr;
  int error = 0;
  const void *site = nullptr;
  Asked asked{};
  const Demand *demand = nullptr;
  void tell() {
    if (function)
      complain(FindingKind::kUnseenError, function, error, site, asked, *demand);
    function = nullptr;
  }
  ~Pending() { tell(); }
};
thread_local Pending pending;
// The compiler's stub of `kernel<<<...>>>` has just taken the sizes of the launch, which it makes next.
thread_local bool in_stub = false;

// Call HIP's own function that launches.
template <typename... Types>
int launch(const char *name, const void *site, Asked asked, bool is_in_stub, Types... arguments) {
  auto *own = next<int(Types...)>(name);
  if (inside)
    return own(arguments...);
  if (is_in_stub)
    pending.tell();
  const Demand *demand;
  int result;
  {
    Inside now;
    demand = &demand_of(asked);
    if (asked.is_cooperative)
      asked.most_groups = most_groups(asked);
    result = own(arguments...);
  }
  if (result == kSuccess)
    return result;
  // The stub drops what it returns, so the program can only ask later.
  if (is_in_stub) {
    pending.function = name;
    pending.error = result;
    pending.site = site;
    pending.asked = asked;
    pending.demand = demand;
  } else {
    complain(FindingKind::kCallError, name, result, site, asked, *demand);
  }
  return result;
}

// The names of the kernels that the program has got, and the launches whose sizes of arguments were reported.
struct Kernels {
  std::mutex mutex;
  std::map<void *, std::string> names;
  std::set<std::tuple<void *, size_t, const void *>> reported;
};

Kernels &kernels() {
  static Kernels *const made = new Kernels; // never destroyed: programs launch while they end
  return *made;
}

// Report, once, the number of bytes of arguments that a launch passes, if it passes that number.
void note_arguments(const char *call, const void *site, void *function, void **extra) {
  constexpr uintptr_t kSize = 2, kEnd = 3; // HIP_LAUNCH_PARAM_BUFFER_SIZE and _END
  const auto word = [&](unsigned at) { return reinterpret_cast<uintptr_t>(extra[at]); };
  unsigned at = 0;
  constexpr unsigned kMost = 6; // all that HIP knows
  while (at < kMost && word(at) != kSize && word(at) != kEnd)
    at += 2;
  if (at >= kMost || word(at) != kSize || !extra[at + 1])
    return;
  const size_t size = *static_cast<const size_t *>(extra[at + 1]);
  std::string name;
  {
    Kernels &all = kernels();
    std::lock_guard lock(all.mutex);
    const auto entry = all.names.find(function);
    if (entry == all.names.end() || !all.reported.emplace(function, size, site).second)
      return;
    name = entry->second;
  }
  if (!luthier_complain_of_call)
    return;
  const CallSite where = call_site(site);
  luthier_complain_of_call(static_cast<uint64_t>(FindingKind::kShortArguments), 0, where.offset, 0, size, 0, 0,
                           (std::string(call) + ": " + name).c_str(), where.symbol, where.file);
}

// Check the bytes that a call reads or writes.
void look(const char *function, const void *site, const void *address, size_t size) {
  if (inside || !size)
    return;
  const auto known = known_around(address);
  const auto first = reinterpret_cast<uint64_t>(address);
  if (known && (known->freed || size > known->address + known->size - first))
    complain(known->freed ? FindingKind::kFreedCopy : FindingKind::kOutsideCopy, function, kSuccess, site,
             {first, size, known->address, known->size});
}

// A copy as the program requests it.
struct Copy {
  const char *function;
  const void *site;
  const void *to, *from;
  size_t size;
  int kind; // hipMemcpyKind
};
constexpr int kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;

// Check the source or destination of a copy that is memory of the host by the kind of the copy.
void look_at_host_side(const Copy &copy, const void *address) {
  const auto known = known_around(address);
  if (known && known->device)
    complain(FindingKind::kCopyDirection, copy.function, kSuccess, copy.site,
             {reinterpret_cast<uint64_t>(address), copy.size, known->address, known->size});
}

// Check the source and destination of a copy, and report it to the device.
void look_at_copy(const Copy &copy) {
  look(copy.function, copy.site, copy.to, copy.size);
  look(copy.function, copy.site, copy.from, copy.size);
  if (inside)
    return;
  if (copy.kind == kHostToHost || copy.kind == kDeviceToHost)
    look_at_host_side(copy, copy.to);
  if (copy.kind == kHostToHost || copy.kind == kHostToDevice)
    look_at_host_side(copy, copy.from);
  if (luthier_copies)
    luthier_copies(reinterpret_cast<uint64_t>(copy.to), reinterpret_cast<uint64_t>(copy.from), copy.size, copy.function,
                   copy.site);
}

// Check what a fill writes, and report it to the device.
void look_at_fill(const char *function, const void *site, const void *to, size_t size) {
  look(function, site, to, size);
  if (!inside && luthier_copies)
    luthier_copies(reinterpret_cast<uint64_t>(to), 0, size, function, site);
}

// Check what a finished copy has written to the host.
void look_at_handed(const Copy &copy) {
  if (!luthier_undefined)
    return;
  const auto from = known_around(copy.from), to = known_around(copy.to);
  if (!from || from->freed || (to && to->device))
    return;
  const auto begin = reinterpret_cast<uint64_t>(copy.from);
  uint64_t first = 0;
  const uint64_t count = luthier_undefined(begin, std::min(copy.size, from->address + from->size - begin), &first);
  if (count)
    complain(FindingKind::kUndefinedCopy, copy.function, kSuccess, copy.site,
             {first, count, from->address, from->size});
}

// Copies that may not be done yet, by stream: if the program never waits, the oldest are dropped.
struct Waiting {
  static constexpr size_t kMost = 1024;
  std::mutex mutex;
  std::deque<std::pair<const void *, Copy>> copies;
};

Waiting &waiting() {
  static Waiting *const made = new Waiting; // never destroyed: programs copy while they end
  return *made;
}

// Check the waiting copies that are done.
template <typename Done> void look_at_waiting(Done done) {
  std::deque<std::pair<const void *, Copy>> done_copies;
  {
    Waiting &all = waiting();
    std::lock_guard lock(all.mutex);
    for (const auto &each : all.copies)
      if (done(each.first))
        done_copies.push_back(each);
    std::erase_if(all.copies, [&](const auto &each) { return done(each.first); });
  }
  for (const auto &each : done_copies)
    look_at_handed(each.second);
}

void copies_later(const Copy &copy, const void *stream) {
  Waiting &all = waiting();
  std::lock_guard lock(all.mutex);
  all.copies.emplace_back(stream, copy);
  if (all.copies.size() > Waiting::kMost)
    all.copies.pop_front();
}

// Make a copy in a stream that is done when HIP's function returns.
template <typename... Types> int copy_now(const Copy &copy, void *stream, Types... arguments) {
  look_at_copy(copy);
  const int result = call(copy.function, copy.site, arguments...);
  if (!inside && result == kSuccess)
    look_at_handed(copy);
  if (result == kSuccess)
    in_flight::synchronised(stream);
  return result;
}

// Make a copy that may not be done when HIP's function returns.
template <typename... Types> int copy_later(const Copy &copy, void *stream, Types... arguments) {
  look_at_copy(copy);
  const uint64_t number = in_flight::begin_copy(copy.function, copy.to, copy.from, copy.size, stream);
  const int result = call(copy.function, copy.site, arguments..., stream);
  in_flight::end_copy(number, stream, result == kSuccess);
  if (!inside && result == kSuccess)
    copies_later(copy, stream);
  return result;
}

} // namespace

namespace {

// Return whether a result is an answer, not an error. rocBLAS and hipBLASLt look for a kernel in one module, and one
// file, after another; whoever goes on without a module or a kernel gets another error.
bool is_answer(const char *function, int result) {
  const std::string_view name(function);
  return result == kNotReady || (result == kNotFound && name == "hipModuleGetFunction") ||
         (result == kFileNotFound && name == "hipModuleLoad");
}

} // namespace

void note_result(const char *function, int result, const void *site) {
  if (!inside && result != kSuccess && !is_answer(function, result))
    complain(FindingKind::kCallError, function, result, site);
}

void note_pages(const char *function, const void *site) {
  static auto *const reported = new std::set<std::string>;
  static auto *const mutex = new std::mutex; // never destroyed, both: programs ask for memory while they end
  {
    std::lock_guard lock(*mutex);
    if (!reported->insert(function).second)
      return;
  }
  complain(FindingKind::kOnlyPages, function, kSuccess, site);
}

void look_at_copies(const void *stream) {
  look_at_waiting([stream](const void *its) { return its == stream; });
}

void stream_is_done(void *stream) {
  look_at_copies(stream);
  stream ? in_flight::synchronised(stream) : in_flight::all_synchronised();
}

void all_streams_are_done() {
  look_at_waiting([](const void *) { return true; });
  in_flight::all_synchronised();
}

} // namespace luthier

using namespace luthier;

#define SITE __builtin_return_address(0)

extern "C" {

int __hipPopCallConfiguration(Dim3 *groups, Dim3 *items, size_t *lds, void **stream) {
  in_stub = !inside;
  return next<int(Dim3 *, Dim3 *, size_t *, void **)>("__hipPopCallConfiguration")(groups, items, lds, stream);
}

int hipLaunchKernel(const void *function, Dim3 groups, Dim3 items, void **arguments, size_t lds, void *stream) {
  const Asked asked{const_cast<void *>(function), false, groups, items, lds};
  return launch("hipLaunchKernel", SITE, asked, std::exchange(in_stub, false), function, groups, items, arguments, lds,
                stream);
}

int hipGetLastError() {
  pending.function = inside ? pending.function : nullptr;
  return next<int()>("hipGetLastError")();
}

int hipPeekAtLastError() {
  pending.function = inside ? pending.function : nullptr;
  return next<int()>("hipPeekAtLastError")();
}

int hipLaunchCooperativeKernel(const void *function, Dim3 groups, Dim3 items, void **arguments, unsigned lds,
                               void *stream) {
  const Asked asked{const_cast<void *>(function), false, groups, items, lds, true};
  return launch("hipLaunchCooperativeKernel", SITE, asked, false, function, groups, items, arguments, lds, stream);
}

int hipModuleLaunchCooperativeKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned items_x,
                                     unsigned items_y, unsigned items_z, unsigned lds, void *stream, void **arguments) {
  const Asked asked{function, true, {x, y, z}, {items_x, items_y, items_z}, lds, true};
  return launch("hipModuleLaunchCooperativeKernel", SITE, asked, false, function, x, y, z, items_x, items_y, items_z,
                lds, stream, arguments);
}

int hipModuleLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned items_x, unsigned items_y,
                          unsigned items_z, unsigned lds, void *stream, void **arguments, void **extra) {
  if (!inside && extra)
    note_arguments("hipModuleLaunchKernel", SITE, function, extra);
  const Asked asked{function, true, {x, y, z}, {items_x, items_y, items_z}, lds};
  return launch("hipModuleLaunchKernel", SITE, asked, false, function, x, y, z, items_x, items_y, items_z, lds, stream,
                arguments, extra);
}

int hipMemcpy(void *to, const void *from, size_t size, int kind) {
  return copy_now({"hipMemcpy", SITE, to, from, size, kind}, nullptr, to, from, size, kind);
}

int hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  return copy_later({"hipMemcpyAsync", SITE, to, from, size, kind}, stream, to, from, size, kind);
}

int hipMemcpyWithStream(void *to, const void *from, size_t size, int kind, void *stream) {
  return copy_now({"hipMemcpyWithStream", SITE, to, from, size, kind}, stream, to, from, size, kind, stream);
}

int hipMemcpyHtoD(void *to, void *from, size_t size) {
  return copy_now({"hipMemcpyHtoD", SITE, to, from, size, kHostToDevice}, nullptr, to, from, size);
}

int hipMemcpyDtoH(void *to, void *from, size_t size) {
  return copy_now({"hipMemcpyDtoH", SITE, to, from, size, kDeviceToHost}, nullptr, to, from, size);
}

int hipMemcpyDtoD(void *to, void *from, size_t size) {
  return copy_now({"hipMemcpyDtoD", SITE, to, from, size, kDeviceToDevice}, nullptr, to, from, size);
}

int hipMemset(void *to, int value, size_t size) {
  look_at_fill("hipMemset", SITE, to, size);
  const int result = call("hipMemset", SITE, to, value, size);
  if (result == kSuccess)
    in_flight::synchronised(nullptr);
  return result;
}

int hipMemsetAsync(void *to, int value, size_t size, void *stream) {
  look_at_fill("hipMemsetAsync", SITE, to, size);
  return call("hipMemsetAsync", SITE, to, value, size, stream);
}

int hipStreamDestroy(void *stream) {
  if (!inside && stream) {
    int answer;
    {
      Inside now;
      answer = next<int(void *)>("hipStreamQuery")(stream);
    }
    if (answer == kNotReady)
      complain(FindingKind::kBusyStream, "hipStreamDestroy", kSuccess, SITE);
  }
  in_flight::destroyed_stream(stream);
  return call("hipStreamDestroy", SITE, stream);
}

int hipDeviceSynchronize() {
  const int result = call("hipDeviceSynchronize", SITE);
  if (!inside && result == kSuccess)
    all_streams_are_done();
  return result;
}

int hipStreamSynchronize(void *stream) {
  const int result = call("hipStreamSynchronize", SITE, stream);
  if (!inside && result == kSuccess)
    stream_is_done(stream);
  return result;
}

int hipSetDevice(int device) { return call("hipSetDevice", SITE, device); }
int hipStreamCreate(void **stream) { return call("hipStreamCreate", SITE, stream); }
int hipStreamCreateWithFlags(void **stream, unsigned flags) {
  return call("hipStreamCreateWithFlags", SITE, stream, flags);
}
int hipStreamWaitEvent(void *stream, void *event, unsigned flags) {
  const int result = call("hipStreamWaitEvent", SITE, stream, event, flags);
  if (result == kSuccess)
    in_flight::stream_waits(stream, event);
  return result;
}
int hipEventCreate(void **event) { return call("hipEventCreate", SITE, event); }
int hipEventCreateWithFlags(void **event, unsigned flags) {
  return call("hipEventCreateWithFlags", SITE, event, flags);
}
int hipEventRecord(void *event, void *stream) {
  const int result = call("hipEventRecord", SITE, event, stream);
  if (result == kSuccess)
    in_flight::recorded(event, stream);
  return result;
}
int hipEventSynchronize(void *event) {
  const int result = call("hipEventSynchronize", SITE, event);
  if (result == kSuccess)
    in_flight::event_passed(event);
  return result;
}
int hipEventDestroy(void *event) {
  in_flight::forget_event(event);
  return call("hipEventDestroy", SITE, event);
}
int hipModuleLoad(void **module, const char *file) { return call("hipModuleLoad", SITE, module, file); }
int hipModuleLoadData(void **module, const void *image) { return call("hipModuleLoadData", SITE, module, image); }
int hipModuleGetFunction(void **function, void *module, const char *name) {
  const int result = call("hipModuleGetFunction", SITE, function, module, name);
  if (!inside && result == kSuccess) {
    Kernels &all = kernels();
    std::lock_guard lock(all.mutex);
    all.names[*function] = name;
  }
  return result;
}
}
