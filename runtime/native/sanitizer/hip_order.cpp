// HIP's functions that order the program's and the device's work, before HIP's own, for the check `in-flight`; other
// files have those that further checks need.
#include "in_flight.h"
#include "sanitizer.h"

using namespace luthier;

namespace {

using HostFunction = void(void *data);
using Callback = void(void *stream, int status, void *data);

// A function of the program that HIP calls after work of a stream.
template <typename Function> struct Deferred {
  Function *function;
  void *data;
  uint64_t moment;
};

void run_function(void *data) {
  auto *const deferred = static_cast<Deferred<HostFunction> *>(data);
  const auto [function, own, moment] = *deferred;
  delete deferred;
  in_flight::reached(moment);
  function(own);
}

void run_callback(void *stream, int status, void *data) {
  auto *const deferred = static_cast<Deferred<Callback> *>(data);
  const auto [function, own, moment] = *deferred;
  delete deferred;
  in_flight::reached(moment);
  function(stream, status, own);
}

int launch_function(const char *name, const void *site, void *stream, HostFunction *function, void *data) {
  const uint64_t moment = function ? in_flight::moment(stream) : 0;
  if (!moment) // the check is not wanted
    return call(name, site, stream, function, data);
  auto *const deferred = new Deferred<HostFunction>{function, data, moment};
  HostFunction *const runs = run_function;
  const int result = call(name, site, stream, runs, static_cast<void *>(deferred));
  if (result != kSuccess)
    delete deferred;
  return result;
}

int add_callback(const char *name, const void *site, void *stream, Callback *function, void *data, unsigned flags) {
  const uint64_t moment = function ? in_flight::moment(stream) : 0;
  if (!moment)
    return call(name, site, stream, function, data, flags);
  auto *const deferred = new Deferred<Callback>{function, data, moment};
  Callback *const runs = run_callback;
  const int result = call(name, site, stream, runs, static_cast<void *>(deferred), flags);
  if (result != kSuccess)
    delete deferred;
  return result;
}

// Call a function after which the null stream's work is done.
template <typename... Types> int call_and_wait(const char *name, const void *site, Types... arguments) {
  const int result = call(name, site, arguments...);
  if (result == kSuccess)
    in_flight::synchronised(nullptr);
  return result;
}

int record_anywhere(int result, void *event) {
  if (event && result == kSuccess)
    in_flight::forget_event(event);
  return result;
}

int wait_for_all(int result) {
  if (result == kSuccess)
    in_flight::all_synchronised();
  return result;
}

} // namespace

#define SITE __builtin_return_address(0)

extern "C" {

int hipStreamQuery(void *stream) {
  const int result = call("hipStreamQuery", SITE, stream);
  if (result == kSuccess)
    in_flight::synchronised(stream);
  return result;
}
int hipEventQuery(void *event) {
  const int result = call("hipEventQuery", SITE, event);
  if (result == kSuccess)
    in_flight::event_passed(event);
  return result;
}
int hipEventElapsedTime(float *time, void *start, void *stop) {
  const int result = call("hipEventElapsedTime", SITE, time, start, stop);
  if (result == kSuccess) {
    in_flight::event_passed(start);
    in_flight::event_passed(stop);
  }
  return result;
}
int hipCtxSynchronize() { return wait_for_all(call("hipCtxSynchronize", SITE)); }
int hipEventRecordWithFlags(void *event, void *stream, unsigned flags) {
  const int result = call("hipEventRecordWithFlags", SITE, event, stream, flags);
  if (result == kSuccess)
    in_flight::recorded(event, stream);
  return result;
}

// Of programs in which each thread has its default stream: waits are for everything, which reports less.
int hipStreamSynchronize_spt(void *stream) { return wait_for_all(call("hipStreamSynchronize_spt", SITE, stream)); }
int hipStreamQuery_spt(void *stream) { return wait_for_all(call("hipStreamQuery_spt", SITE, stream)); }
int hipMemcpy_spt(void *to, const void *from, size_t size, int kind) {
  return wait_for_all(call("hipMemcpy_spt", SITE, to, from, size, kind));
}
int hipEventRecord_spt(void *event, void *stream) {
  return record_anywhere(call("hipEventRecord_spt", SITE, event, stream), event);
}
int hipStreamWaitEvent_spt(void *stream, void *event, unsigned flags) {
  return wait_for_all(call("hipStreamWaitEvent_spt", SITE, stream, event, flags));
}

int hipLaunchHostFunc(void *stream, HostFunction *function, void *data) {
  return launch_function("hipLaunchHostFunc", SITE, stream, function, data);
}
int hipLaunchHostFunc_spt(void *stream, HostFunction *function, void *data) {
  return launch_function("hipLaunchHostFunc_spt", SITE, stream, function, data);
}
int hipStreamAddCallback(void *stream, Callback *function, void *data, unsigned flags) {
  return add_callback("hipStreamAddCallback", SITE, stream, function, data, flags);
}
int hipStreamAddCallback_spt(void *stream, Callback *function, void *data, unsigned flags) {
  return add_callback("hipStreamAddCallback_spt", SITE, stream, function, data, flags);
}

// The program may wait for the value in memory.
int hipStreamWriteValue32(void *stream, void *address, uint32_t value, unsigned flags) {
  return wait_for_all(call("hipStreamWriteValue32", SITE, stream, address, value, flags));
}
int hipStreamWriteValue64(void *stream, void *address, uint64_t value, unsigned flags) {
  return wait_for_all(call("hipStreamWriteValue64", SITE, stream, address, value, flags));
}

int hipExtLaunchKernel(const void *function, Dim3 groups, Dim3 items, void **arguments, size_t lds, void *stream,
                       void *start, void *stop, int flags) {
  const int result =
      call("hipExtLaunchKernel", SITE, function, groups, items, arguments, lds, stream, start, stop, flags);
  return record_anywhere(record_anywhere(result, start), stop);
}
int hipExtModuleLaunchKernel(void *function, uint32_t x, uint32_t y, uint32_t z, uint32_t items_x, uint32_t items_y,
                             uint32_t items_z, size_t lds, void *stream, void **arguments, void **extra, void *start,
                             void *stop, uint32_t flags) {
  const int result = call("hipExtModuleLaunchKernel", SITE, function, x, y, z, items_x, items_y, items_z, lds, stream,
                          arguments, extra, start, stop, flags);
  return record_anywhere(record_anywhere(result, start), stop);
}

#define WAITS(name, parameters, ...)                                                                                   \
  int name parameters { return call_and_wait(#name, SITE, __VA_ARGS__); }

WAITS(hipMemcpy2D, (void *to, size_t pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind),
      to, pitch, from, from_pitch, width, height, kind)
WAITS(hipMemcpy3D, (const void *copy), copy)
WAITS(hipMemcpyParam2D, (const void *copy), copy)
WAITS(hipDrvMemcpy3D, (const void *copy), copy)
WAITS(hipMemcpyToSymbol, (const void *symbol, const void *from, size_t size, size_t offset, int kind), symbol, from,
      size, offset, kind)
WAITS(hipMemcpyFromSymbol, (void *to, const void *symbol, size_t size, size_t offset, int kind), to, symbol, size,
      offset, kind)
WAITS(hipMemcpyPeer, (void *to, int device, const void *from, int from_device, size_t size), to, device, from,
      from_device, size)
WAITS(hipMemcpy2DToArray,
      (void *to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, int kind), to, x, y,
      from, pitch, width, height, kind)
WAITS(hipMemcpy2DFromArray,
      (void *to, size_t pitch, const void *from, size_t x, size_t y, size_t width, size_t height, int kind), to, pitch,
      from, x, y, width, height, kind)
WAITS(hipMemcpyToArray, (void *to, size_t x, size_t y, const void *from, size_t size, int kind), to, x, y, from, size,
      kind)
WAITS(hipMemcpyFromArray, (void *to, const void *from, size_t x, size_t y, size_t size, int kind), to, from, x, y, size,
      kind)
WAITS(hipMemsetD8, (void *to, unsigned char value, size_t count), to, value, count)
WAITS(hipMemsetD16, (void *to, unsigned short value, size_t count), to, value, count)
WAITS(hipMemsetD32, (void *to, int value, size_t count), to, value, count)
WAITS(hipMemset2D, (void *to, size_t pitch, int value, size_t width, size_t height), to, pitch, value, width, height)
WAITS(hipMemset3D, (Pitched to, int value, Box box), to, value, box)
WAITS(hipFreeArray, (void *array), array)
}
