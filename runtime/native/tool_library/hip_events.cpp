// Calls of HIP functions: libamdhip64 itself reports them, through the callbacks that roctracer uses.
//
// Each function has two callbacks. The callback for activities provides the memory for the report of a call, and takes
// it back; without it, a function is not reported. The other callback is called when the call begins and ends.
#include <cstring>
#include <dlfcn.h>
#include <link.h>

#include "api_functions.h"
#include "events.h"

#if LUTHIER_HAS_HIP

#define __HIP_PLATFORM_AMD__ 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <hip/hip_runtime_api.h>

#include <hip/amd_detail/hip_prof_str.h>
#pragma GCC diagnostic pop

namespace luthier {

namespace {

// Place of a value in what a callback is given.
struct Field {
  const char *function, *name;
  size_t offset, size;
  bool is_signed;
  size_t output_size; // of what it points to; 0 if that is not known
  bool output_is_signed;

  bool is_reported() const { return size <= sizeof(uint64_t); }
  bool has_output() const { return output_size && output_size <= sizeof(uint64_t); }
  uint64_t value(const hip_api_data_t &data) const {
    uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<const char *>(&data) + offset, size);
    return EventLog::extend(value, size, is_signed);
  }
};

template <typename T> constexpr bool kSigned = std::is_integral_v<T> && std::is_signed_v<T>;

#define LUTHIER_PLACE(f, a) static_cast<hip_api_data_t *>(nullptr)->args.f.a
#define LUTHIER_OFFSET(f, a) offsetof(hip_api_data_t, args.f.a)
#define LUTHIER_VALUE(f, a)                                                                                            \
  {#f,                                                                                                                 \
   #a,                                                                                                                 \
   LUTHIER_OFFSET(f, a),                                                                                               \
   sizeof(LUTHIER_PLACE(f, a)),                                                                                        \
   kSigned<std::remove_reference_t<decltype(LUTHIER_PLACE(f, a))>>,                                                    \
   0,                                                                                                                  \
   false},
#define LUTHIER_OUTPUT(f, a)                                                                                           \
  {#f,                                                                                                                 \
   #a,                                                                                                                 \
   LUTHIER_OFFSET(f, a),                                                                                               \
   sizeof(LUTHIER_PLACE(f, a)),                                                                                        \
   false,                                                                                                              \
   sizeof(LUTHIER_PLACE(f, a##__val)),                                                                                 \
   kSigned<std::remove_reference_t<decltype(LUTHIER_PLACE(f, a##__val))>>},
#define LUTHIER_DIM3(f, a)                                                                                             \
  {#f, #a ".x", LUTHIER_OFFSET(f, a), 4, false, 0, false},                                                             \
      {#f, #a ".y", LUTHIER_OFFSET(f, a) + 4, 4, false, 0, false},                                                     \
      {#f, #a ".z", LUTHIER_OFFSET(f, a) + 8, 4, false, 0, false},

const Field all_fields[] = {LUTHIER_HIP_ARGUMENTS(LUTHIER_VALUE, LUTHIER_OUTPUT, LUTHIER_DIM3)};

// A function that is reported.
struct Function {
  uint32_t id;
  bool has_result;
  std::vector<const Field *> fields;
};

// A call that has not ended. Calls are reused and never freed: a thread may call HIP while it ends.
struct Call {
  Call() {}
  union {
    hip_api_data_t data; // HIP fills it
  };
  uint64_t number;
  Call *next; // the call around it, or the next one that is free
};

struct Callbacks {
  EventLog &log;
  hipError_t (*last_error)();
  std::mutex mutex;
  Call *unused = nullptr;
};

Callbacks *callbacks = nullptr;
thread_local Call *innermost = nullptr;
thread_local bool inside = false; // calls from here are not events

// HIP calls it first without `memory` to get some, and then with it to give the memory back.
void *on_activity(uint32_t, void *, const void *, void *memory) {
  std::lock_guard lock(callbacks->mutex);
  if (memory) {
    Call *ended = innermost;
    innermost = ended->next;
    ended->next = callbacks->unused;
    callbacks->unused = ended;
    return nullptr;
  }
  if (inside)
    return nullptr;
  Call *begun = callbacks->unused;
  if (begun)
    callbacks->unused = begun->next;
  else
    begun = new Call;
  begun->data.correlation_id = 0;
  begun->data.phase = 0;
  begun->next = innermost;
  innermost = begun;
  return &begun->data;
}

void on_call(uint32_t, uint32_t, const void *, void *argument) {
  const auto &function = *static_cast<const Function *>(argument);
  const hip_api_data_t &data = innermost->data;
  std::vector<uint64_t> values;
  if (data.phase == 0) {
    for (const Field *field : function.fields)
      values.push_back(field->value(data));
    innermost->number = callbacks->log.enter(function.id, values);
    return;
  }
  if (!function.has_result) {
    callbacks->log.exit(function.id, innermost->number, nullptr, {});
    return;
  }
  inside = true;
  const auto result = static_cast<uint64_t>(callbacks->last_error());
  inside = false;
  if (result == hipSuccess)
    for (const Field *field : function.fields)
      if (field->has_output()) {
        uint64_t value = 0;
        EventLog::read(field->value(data), field->output_size, field->output_is_signed, value);
        values.push_back(value);
      }
  callbacks->log.exit(function.id, innermost->number, &result, values);
}

// Return whether a library has the functions of the header: its data can only be read with the header's layouts.
bool is_of_header(const char *(*name_of)(uint32_t)) {
  for (uint32_t id = HIP_API_ID_FIRST; id <= HIP_API_ID_LAST + 1; ++id)
    if (std::strcmp(name_of(id), hip_api_name(id)) != 0)
      return false;
  return true;
}

// Return a library of the process whose file name begins with `name`; null if there is none.
void *loaded_library(const char *name) {
  struct Search {
    const char *name;
    std::string path;
  } search{name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        auto &search = *static_cast<Search *>(data);
        const char *file = std::strrchr(info->dlpi_name, '/');
        if (std::strncmp(file ? file + 1 : info->dlpi_name, search.name, std::strlen(search.name)) != 0)
          return 0;
        search.path = info->dlpi_name;
        return 1;
      },
      &search);
  return search.path.empty() ? nullptr : dlopen(search.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
}

template <typename Function> Function find(void *library, const char *name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

} // namespace

bool tell_of_hip(EventLog &log, Faults &faults, const std::vector<std::string> &patterns) {
  void *library = loaded_library("libamdhip64.so");
  if (!library)
    return false;
  const auto add_callback = find<hipError_t (*)(uint32_t, void *, void *)>(library, "hipRegisterApiCallback");
  const auto add_activity = find<hipError_t (*)(uint32_t, void *, void *)>(library, "hipRegisterActivityCallback");
  const auto name_of = find<const char *(*)(uint32_t)>(library, "hipApiName");
  const auto last_error = find<hipError_t (*)()>(library, "hipPeekAtLastError");
  if (!add_callback || !add_activity || !name_of || !last_error)
    throw Failure("there are no events of HIP: this libamdhip64 has no hipRegisterApiCallback (newer ones report "
                  "their calls only to rocprofiler-register)");
  if (!is_of_header(name_of))
    throw Failure("there are no events of HIP: Luthier was built with the headers of another version");
  if (loaded_library("libroctracer64.so"))
    throw Failure("there are no events of HIP: it reports its calls to roctracer, and can report to only one listener");
  std::vector<ApiFunction> described;
  std::vector<std::pair<uint32_t, Function *>> wanted;
  for (uint32_t id = HIP_API_ID_FIRST; id <= HIP_API_ID_LAST; ++id) {
    const char *name = hip_api_name(id);
    if (!EventLog::wanted(patterns, name))
      continue;
    // Never freed: calls are reported until the process ends. What hipGetLastError has returned is not known.
    auto *function = new Function{static_cast<uint32_t>(described.size()), id != HIP_API_ID_hipGetLastError, {}};
    ApiFunction description{false, "hip", name, {}, {}};
    for (const Field &field : all_fields) {
      if (std::strcmp(field.function, name) != 0 || !field.is_reported())
        continue;
      function->fields.push_back(&field);
      description.arguments.push_back({field.is_signed, field.name});
      if (field.has_output())
        description.outputs.push_back({field.output_is_signed, field.name});
    }
    described.push_back(description);
    wanted.emplace_back(id, function);
  }
  const uint32_t first = log.add(described);
  callbacks = new Callbacks{log, last_error, {}};
  for (auto [id, function] : wanted) {
    function->id += first;
    if (add_callback(id, reinterpret_cast<void *>(on_call), function) != hipSuccess ||
        add_activity(id, reinterpret_cast<void *>(on_activity), function) != hipSuccess)
      faults.tell(std::string("there are no events of ") + hip_api_name(id) + ": HIP takes no callback for it");
  }
  return true;
}

} // namespace luthier

#else

namespace luthier {

bool tell_of_hip(EventLog &, Faults &, const std::vector<std::string> &) {
  throw Failure("there are no events of HIP: Luthier was built without its headers");
}

} // namespace luthier

#endif
