// HSA functions that tell of their calls: each stands in ROCr's table before the function that was there.
#include <cstring>
#include <sstream>
#include <type_traits>

#include "api_functions.h"
#include "events.h"

namespace luthier {

namespace {

EventLog *the_log = nullptr;

template <typename T> constexpr bool kSigned = std::is_integral_v<T> && std::is_signed_v<T>;

// A value as 64 bits, with its sign extended. Handles are structures of one number.
template <typename T> uint64_t word(T value) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
}

// Return the bytes that a function may have written where an argument points; 0: none that can be reported as a number.
template <typename T> constexpr size_t output_size() {
  using Pointee = std::remove_pointer_t<T>;
  if constexpr (!std::is_pointer_v<T> || std::is_const_v<Pointee> || std::is_void_v<Pointee> ||
                std::is_function_v<Pointee> || std::is_same_v<Pointee, char> || !requires { sizeof(Pointee); })
    return 0;
  else
    return sizeof(Pointee) <= sizeof(uint64_t) ? sizeof(Pointee) : 0;
}

template <typename T> void read_output(T pointer, std::vector<uint64_t> &values) {
  if constexpr (output_size<T>() != 0) {
    uint64_t value = 0;
    EventLog::read(word(pointer), output_size<T>(), kSigned<std::remove_pointer_t<T>>, value);
    values.push_back(value);
  }
}

template <auto Member> struct Told;

template <typename Table, typename Result, typename... Args, Result (*Table::*Member)(Args...)> struct Told<Member> {
  static inline Result (*next)(Args...) = nullptr;
  static inline uint32_t id = 0;

  static Result call(Args... arguments) {
    const uint64_t words[sizeof...(Args) + 1] = {word(arguments)...};
    const uint64_t number = the_log->enter(id, {words, sizeof...(Args)});
    if constexpr (std::is_void_v<Result>) {
      next(arguments...);
      the_log->exit(id, number, nullptr, {});
    } else {
      const Result result = next(arguments...);
      const uint64_t bits = word(result);
      std::vector<uint64_t> values;
      if (!std::is_same_v<Result, hsa_status_t> || bits == HSA_STATUS_SUCCESS)
        (read_output(arguments, values), ...);
      the_log->exit(id, number, &bits, values);
      return result;
    }
  }

  static ApiFunction describe(const char *name, const char *arguments) {
    ApiFunction function{"hsa", name, {}, {}, kSigned<Result>};
    std::istringstream names(arguments);
    [[maybe_unused]] const auto add = [&]<typename T>(std::type_identity<T>) {
      std::string one;
      if (!std::getline(names, one, ','))
        one = std::to_string(function.arguments.size());
      function.arguments.push_back({one, kSigned<T>});
      if (output_size<T>() != 0)
        function.outputs.push_back({one, kSigned<std::remove_pointer_t<T>>});
    };
    (add(std::type_identity<Args>{}), ...);
    return function;
  }
};

// Entry of the table, and what is to replace it.
struct Change {
  void **slot;
  void *function;
  void **next;
  uint32_t *id;
};

} // namespace

void tell_of_hsa(HsaApiTable &table, EventLog &log, const std::vector<std::string> &patterns) {
  the_log = &log;
  std::vector<ApiFunction> functions;
  std::vector<Change> changes;
  const auto add = [&]<auto Member>(void **slot, const char *name, const char *arguments) {
    using Wrapper = Told<Member>;
    if (!slot || !*slot || !EventLog::wanted(patterns, name))
      return;
    functions.push_back(Wrapper::describe(name, arguments));
    changes.push_back(
        {slot, reinterpret_cast<void *>(&Wrapper::call), reinterpret_cast<void **>(&Wrapper::next), &Wrapper::id});
  };
#define LUTHIER_CORE(name, arguments)                                                                                  \
  add.operator()<&CoreApiTable::name##_fn>(slot(table.core_, &CoreApiTable::name##_fn), #name, arguments);
#define LUTHIER_AMD(name, arguments)                                                                                   \
  add.operator()<&AmdExtTable::name##_fn>(slot(table.amd_ext_, &AmdExtTable::name##_fn), #name, arguments);
  LUTHIER_CORE_FUNCTIONS(LUTHIER_CORE)
  LUTHIER_AMD_FUNCTIONS(LUTHIER_AMD)
  uint32_t id = log.add(functions);
  for (const Change &change : changes) {
    *change.id = id++;
    *change.next = *change.slot;
    *change.slot = change.function;
  }
}

} // namespace luthier
