// HSA functions that report their calls: each replaces a function in ROCr's table, and calls it.
#include <array>
#include <cstring>
#include <span>
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

// Return the bytes that a function may write where an argument points; 0 if they cannot be reported as a number.
template <typename T> constexpr size_t output_size() {
  using Pointee = std::remove_pointer_t<T>;
  if constexpr (!std::is_pointer_v<T> || std::is_const_v<Pointee> || std::is_void_v<Pointee> ||
                std::is_function_v<Pointee> || std::is_same_v<Pointee, char> || !requires { sizeof(Pointee); })
    return 0;
  else
    return sizeof(Pointee) <= sizeof(uint64_t) ? sizeof(Pointee) : 0;
}

// Facts of the type of an argument or result, as data: code for each of some 200 functions would be slow to compile.
struct Kind {
  bool is_signed;
  bool is_output_signed;
  size_t output_size; // as that function returns it
};

template <typename T> constexpr Kind kKind{kSigned<T>, kSigned<std::remove_pointer_t<T>>, output_size<T>()};

std::vector<uint64_t> read_outputs(std::span<const Kind> kinds, const uint64_t *arguments) {
  std::vector<uint64_t> values;
  for (const Kind &kind : kinds) {
    const uint64_t pointer = *arguments++;
    if (!kind.output_size)
      continue;
    uint64_t value = 0;
    EventLog::read(pointer, kind.output_size, kind.is_output_signed, value);
    values.push_back(value);
  }
  return values;
}

template <auto Member> struct Told;

template <typename Table, typename Result, typename... Args, Result (*Table::*Member)(Args...)> struct Told<Member> {
  static constexpr std::array<Kind, sizeof...(Args)> kKinds{kKind<Args>...};
  static constexpr bool kIsSigned = kSigned<Result>;
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
      const bool failed = std::is_same_v<Result, hsa_status_t> && bits != HSA_STATUS_SUCCESS;
      the_log->exit(id, number, &bits, failed ? std::vector<uint64_t>() : read_outputs(kKinds, words));
      return result;
    }
  }
};

// An entry of ROCr's table, and what is to replace it.
struct Change {
  void **slot;
  void *function;
  void **next;
  uint32_t *id;
  const char *name;
  const char *arguments; // their names
  std::span<const Kind> kinds;
  bool is_signed;
};

template <auto Member> Change change(void **slot, const char *name, const char *arguments) {
  using Wrapper = Told<Member>;
  return {slot,
          reinterpret_cast<void *>(&Wrapper::call),
          reinterpret_cast<void **>(&Wrapper::next),
          &Wrapper::id,
          name,
          arguments,
          Wrapper::kKinds,
          Wrapper::kIsSigned};
}

ApiFunction describe(const Change &change) {
  ApiFunction function{change.is_signed, "hsa", change.name, {}, {}};
  std::istringstream names(change.arguments);
  for (const Kind &kind : change.kinds) {
    std::string name;
    if (!std::getline(names, name, ','))
      name = std::to_string(function.arguments.size());
    function.arguments.push_back({kind.is_signed, name});
    if (kind.output_size)
      function.outputs.push_back({kind.is_output_signed, name});
  }
  return function;
}

} // namespace

void tell_of_hsa(HsaApiTable &table, EventLog &log, const std::vector<std::string> &patterns) {
  the_log = &log;
#define LUTHIER_CORE(name, arguments)                                                                                  \
  change<&CoreApiTable::name##_fn>(slot(table.core_, &CoreApiTable::name##_fn), #name, arguments),
#define LUTHIER_AMD(name, arguments)                                                                                   \
  change<&AmdExtTable::name##_fn>(slot(table.amd_ext_, &AmdExtTable::name##_fn), #name, arguments),
  const Change known[] = {LUTHIER_CORE_FUNCTIONS(LUTHIER_CORE) LUTHIER_AMD_FUNCTIONS(LUTHIER_AMD)};
  std::vector<const Change *> changes;
  std::vector<ApiFunction> functions;
  for (const Change &change : known) {
    if (!change.slot || !*change.slot || !EventLog::wanted(patterns, change.name))
      continue;
    changes.push_back(&change);
    functions.push_back(describe(change));
  }
  uint32_t id = log.add(functions);
  for (const Change *change : changes) {
    *change->id = id++;
    *change->next = *change->slot;
    *change->slot = change->function;
  }
}

} // namespace luthier
