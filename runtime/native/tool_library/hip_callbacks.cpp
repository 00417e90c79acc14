// While HIP 5.2 reports its calls to any listener, it never calls a function of the program (hipStreamAddCallback). The
// signal of such a command goes from 2 to 1 when the command is done, and to 0 when the function has returned. But the
// handler that calls the function waits until all signals of the batch are 0, its own included (HsaAmdSignalHandler;
// newer versions compare with 1). Here that handler reads its own signal as one less.
#include <map>

#include "events.h"

namespace luthier {

namespace {

// A handler that waits for the signal of a command with a function to call.
struct Waiting {
  hsa_amd_signal_handler handler;
  void *argument;
  hsa_signal_t signal;
};

decltype(AmdExtTable::hsa_amd_signal_async_handler_fn) next_handler = nullptr;
decltype(CoreApiTable::hsa_signal_load_relaxed_fn) next_load = nullptr;
std::mutex mutex;
std::map<void *, Waiting *> waiting; // by the handler's argument
thread_local hsa_signal_t own_signal{0};

hsa_signal_value_t load(hsa_signal_t signal) {
  const hsa_signal_value_t value = next_load(signal);
  return own_signal.handle && signal.handle == own_signal.handle ? value - 1 : value;
}

bool handle(hsa_signal_value_t value, void *data) {
  auto *entry = static_cast<Waiting *>(data);
  own_signal = entry->signal;
  const bool again = entry->handler(value, entry->argument);
  own_signal = {0};
  if (!again && next_load(entry->signal) == 0) {
    std::lock_guard lock(mutex);
    waiting.erase(entry->argument);
    delete entry;
  }
  return again;
}

// HIP waits for a command until its signal is less than 1, or less than 2 if it has a function to call. A handler that
// finds others not done waits for them in turn.
hsa_status_t wait_for(hsa_signal_t signal, hsa_signal_condition_t condition, hsa_signal_value_t value,
                      hsa_amd_signal_handler handler, void *argument) {
  if (condition == HSA_SIGNAL_CONDITION_LT && (value == 1 || value == 2)) {
    std::lock_guard lock(mutex);
    auto entry = waiting.find(argument);
    if (value == 2 && entry == waiting.end())
      entry = waiting.emplace(argument, new Waiting{handler, argument, signal}).first;
    if (entry != waiting.end() && entry->second->handler == handler) {
      handler = handle;
      argument = entry->second;
    }
  }
  return next_handler(signal, condition, value, handler, argument);
}

} // namespace

void mend_hip_callbacks(HsaApiTable &table) {
  void **handlers = slot(table.amd_ext_, &AmdExtTable::hsa_amd_signal_async_handler_fn);
  next_handler = reinterpret_cast<decltype(next_handler)>(*handlers);
  next_load = table.core_->hsa_signal_load_relaxed_fn;
  *handlers = reinterpret_cast<void *>(wait_for);
  table.core_->hsa_signal_load_relaxed_fn = load;
}

} // namespace luthier
