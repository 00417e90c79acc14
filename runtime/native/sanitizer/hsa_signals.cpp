// ROCr's functions of signals, before ROCr's own. They report to the virtual device which signals a program has read:
// only then does the program know that the work that changed them is done.
//
// Other signals, as those of ROCr itself and of its tools, are not reported: each change of one counts as read.
#include "sanitizer.h"

extern "C" {
// Of libluthier_kfd.so, which is loaded before.
void luthier_signal_made(uint64_t handle) __attribute__((weak));
void luthier_signal_destroyed(uint64_t handle) __attribute__((weak));
void luthier_signal_opened(uint64_t handle) __attribute__((weak));
void luthier_signal_read(uint64_t handle, int64_t value) __attribute__((weak));
void luthier_signal_written(uint64_t handle) __attribute__((weak));
void luthier_signal_awaited(uint64_t handle) __attribute__((weak));
}

namespace {

using namespace luthier;

// hsa_signal_t as the C ABI passes it.
using Signal = uint64_t;
using Handler = bool(int64_t value, void *argument);

// A function that ROCr calls when a signal has changed.
struct Awaiting {
  Signal signal;
  Handler *handler;
  void *argument;
};

void tell(void (*listener)(Signal), Signal signal) {
  if (listener && signal)
    listener(signal);
}

void tell_read(Signal signal, int64_t value) {
  if (luthier_signal_read && signal)
    luthier_signal_read(signal, value);
}

int made(int status, const Signal *signal) {
  if (status == kSuccess)
    tell(luthier_signal_made, *signal);
  return status;
}

void tell_awaited(uint32_t count, const Signal *signals) {
  for (uint32_t at = 0; signals && at < count; ++at)
    tell(luthier_signal_awaited, signals[at]);
}

// ROCr calls it again while it returns true.
bool changed(int64_t value, void *argument) {
  auto *const awaiting = static_cast<Awaiting *>(argument);
  tell_read(awaiting->signal, value);
  if (awaiting->handler(value, awaiting->argument))
    return true;
  delete awaiting;
  return false;
}

} // namespace

#define READ(name)                                                                                                     \
  int64_t name(Signal signal) {                                                                                        \
    static auto *const own = next<int64_t(Signal)>(#name, kHsaLibrary);                                                \
    const int64_t value = own(signal);                                                                                 \
    tell_read(signal, value);                                                                                          \
    return value;                                                                                                      \
  }

#define WRITE(name)                                                                                                    \
  void name(Signal signal, int64_t value) {                                                                            \
    static auto *const own = next<void(Signal, int64_t)>(#name, kHsaLibrary);                                          \
    tell(luthier_signal_written, signal);                                                                              \
    own(signal, value);                                                                                                \
  }

// These return the previous value.
#define EXCHANGE(name)                                                                                                 \
  int64_t name(Signal signal, int64_t value) {                                                                         \
    static auto *const own = next<int64_t(Signal, int64_t)>(#name, kHsaLibrary);                                       \
    tell(luthier_signal_written, signal);                                                                              \
    const int64_t before = own(signal, value);                                                                         \
    tell_read(signal, before);                                                                                         \
    return before;                                                                                                     \
  }

#define COMPARE(name)                                                                                                  \
  int64_t name(Signal signal, int64_t expected, int64_t value) {                                                       \
    static auto *const own = next<int64_t(Signal, int64_t, int64_t)>(#name, kHsaLibrary);                              \
    tell(luthier_signal_written, signal);                                                                              \
    const int64_t before = own(signal, expected, value);                                                               \
    tell_read(signal, before);                                                                                         \
    return before;                                                                                                     \
  }

#define WAIT(name)                                                                                                     \
  int64_t name(Signal signal, int condition, int64_t compared, uint64_t timeout, int state) {                          \
    static auto *const own = next<int64_t(Signal, int, int64_t, uint64_t, int)>(#name, kHsaLibrary);                   \
    const int64_t value = own(signal, condition, compared, timeout, state);                                            \
    tell_read(signal, value);                                                                                          \
    return value;                                                                                                      \
  }

// The memory orders in names of functions, with the deprecated names.
#define READ_ORDERS(each, name) each(name##_scacquire) each(name##_acquire) each(name##_relaxed)
#define WRITE_ORDERS(each, name) each(name##_screlease) each(name##_release) each(name##_relaxed)
#define ALL_ORDERS(each, name)                                                                                         \
  READ_ORDERS(each, name)                                                                                              \
  each(name##_screlease) each(name##_release) each(name##_scacq_screl) each(name##_acq_rel)

extern "C" {

READ_ORDERS(READ, hsa_signal_load)
READ_ORDERS(WAIT, hsa_signal_wait)
WRITE_ORDERS(WRITE, hsa_signal_store)
WRITE(hsa_signal_silent_store_screlease)
WRITE(hsa_signal_silent_store_relaxed)
ALL_ORDERS(WRITE, hsa_signal_add)
ALL_ORDERS(WRITE, hsa_signal_subtract)
ALL_ORDERS(WRITE, hsa_signal_and)
ALL_ORDERS(WRITE, hsa_signal_or)
ALL_ORDERS(WRITE, hsa_signal_xor)
ALL_ORDERS(EXCHANGE, hsa_signal_exchange)
ALL_ORDERS(COMPARE, hsa_signal_cas)

int hsa_signal_create(int64_t value, uint32_t count, const void *consumers, Signal *signal) {
  static auto *const own = next<int(int64_t, uint32_t, const void *, Signal *)>("hsa_signal_create", kHsaLibrary);
  return made(own(value, count, consumers, signal), signal);
}

int hsa_amd_signal_create(int64_t value, uint32_t count, const void *consumers, uint64_t attributes, Signal *signal) {
  static auto *const own =
      next<int(int64_t, uint32_t, const void *, uint64_t, Signal *)>("hsa_amd_signal_create", kHsaLibrary);
  return made(own(value, count, consumers, attributes, signal), signal);
}

int hsa_signal_destroy(Signal signal) {
  static auto *const own = next<int(Signal)>("hsa_signal_destroy", kHsaLibrary);
  tell(luthier_signal_destroyed, signal);
  return own(signal);
}

int hsa_amd_signal_value_pointer(Signal signal, volatile int64_t **pointer) {
  static auto *const own = next<int(Signal, volatile int64_t **)>("hsa_amd_signal_value_pointer", kHsaLibrary);
  tell(luthier_signal_opened, signal);
  return own(signal, pointer);
}

int hsa_amd_ipc_signal_create(Signal signal, void *handle) {
  static auto *const own = next<int(Signal, void *)>("hsa_amd_ipc_signal_create", kHsaLibrary);
  tell(luthier_signal_opened, signal);
  return own(signal, handle);
}

int hsa_signal_group_create(uint32_t count, const Signal *signals, uint32_t agents, const void *consumers,
                            uint64_t *group) {
  static auto *const own =
      next<int(uint32_t, const Signal *, uint32_t, const void *, uint64_t *)>("hsa_signal_group_create", kHsaLibrary);
  for (uint32_t at = 0; at < count; ++at)
    tell(luthier_signal_opened, signals[at]);
  return own(count, signals, agents, consumers, group);
}

uint32_t hsa_amd_signal_wait_any(uint32_t count, Signal *signals, int *conditions, int64_t *values, uint64_t timeout,
                                 int state, int64_t *value) {
  static auto *const own = next<uint32_t(uint32_t, Signal *, int *, int64_t *, uint64_t, int, int64_t *)>(
      "hsa_amd_signal_wait_any", kHsaLibrary);
  int64_t its = 0;
  const uint32_t at = own(count, signals, conditions, values, timeout, state, &its);
  if (at < count)
    tell_read(signals[at], its);
  if (value)
    *value = its;
  return at;
}

uint32_t hsa_amd_signal_wait_all(uint32_t count, Signal *signals, int *conditions, int64_t *values, uint64_t timeout,
                                 int state, int64_t *satisfying) {
  static auto *const own = next<uint32_t(uint32_t, Signal *, int *, int64_t *, uint64_t, int, int64_t *)>(
      "hsa_amd_signal_wait_all", kHsaLibrary);
  const uint32_t result = own(count, signals, conditions, values, timeout, state, satisfying);
  for (uint32_t at = 0; at < count; ++at)
    if (signals[at])
      hsa_signal_load_relaxed(signals[at]);
  return result;
}

int hsa_amd_signal_async_handler(Signal signal, int condition, int64_t value, Handler *handler, void *argument) {
  static auto *const own =
      next<int(Signal, int, int64_t, Handler *, void *)>("hsa_amd_signal_async_handler", kHsaLibrary);
  if (!handler || !luthier_signal_read)
    return own(signal, condition, value, handler, argument);
  auto *const awaiting = new Awaiting{signal, handler, argument};
  const int status = own(signal, condition, value, changed, awaiting);
  if (status != kSuccess)
    delete awaiting;
  return status;
}

int hsa_amd_memory_async_copy(void *to, uint64_t to_agent, const void *from, uint64_t from_agent, size_t size,
                              uint32_t count, const Signal *awaited, Signal completion) {
  static auto *const own =
      next<int(void *, uint64_t, const void *, uint64_t, size_t, uint32_t, const Signal *, Signal)>(
          "hsa_amd_memory_async_copy", kHsaLibrary);
  tell_awaited(count, awaited);
  return own(to, to_agent, from, from_agent, size, count, awaited, completion);
}

int hsa_amd_memory_async_copy_on_engine(void *to, uint64_t to_agent, const void *from, uint64_t from_agent, size_t size,
                                        uint32_t count, const Signal *awaited, Signal completion, int engine,
                                        bool is_forced) {
  static auto *const own =
      next<int(void *, uint64_t, const void *, uint64_t, size_t, uint32_t, const Signal *, Signal, int, bool)>(
          "hsa_amd_memory_async_copy_on_engine", kHsaLibrary);
  tell_awaited(count, awaited);
  return own(to, to_agent, from, from_agent, size, count, awaited, completion, engine, is_forced);
}

int hsa_amd_memory_async_copy_rect(const void *to, const void *to_offset, const void *from, const void *from_offset,
                                   const void *range, uint64_t agent, int direction, uint32_t count,
                                   const Signal *awaited, Signal completion) {
  static auto *const own = next<int(const void *, const void *, const void *, const void *, const void *, uint64_t, int,
                                    uint32_t, const Signal *, Signal)>("hsa_amd_memory_async_copy_rect", kHsaLibrary);
  tell_awaited(count, awaited);
  return own(to, to_offset, from, from_offset, range, agent, direction, count, awaited, completion);
}

// ROCr's own thread changes the signal.
int hsa_amd_svm_prefetch_async(void *address, size_t size, uint64_t agent, uint32_t count, const Signal *awaited,
                               Signal completion) {
  static auto *const own =
      next<int(void *, size_t, uint64_t, uint32_t, const Signal *, Signal)>("hsa_amd_svm_prefetch_async", kHsaLibrary);
  tell_awaited(count, awaited);
  tell(luthier_signal_opened, completion);
  return own(address, size, agent, count, awaited, completion);
}
}
