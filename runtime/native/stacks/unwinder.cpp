// Reads unwind information (.eh_frame), which section 6.4 of the DWARF standard and the LSB describe, and keeps the
// rule for each return address: unwinding by libgcc takes several times as long as a launch may.
#include "unwinder.h"

#include <cstdint>
#include <cstring>
#include <link.h>
#include <unordered_map>
#include <unwind.h>

#include "next_function.h"

extern "C" {
// Of libgcc; it knows the code of loaded objects, and code that JIT compilers have registered.
struct FrameBases {
  void *text, *data, *function;
};
// NOLINTNEXTLINE(readability-identifier-naming): libgcc has named it
const void *_Unwind_Find_FDE(void *address, FrameBases *bases);
}

namespace luthier {

namespace {

constexpr unsigned kRbp = 6, kRsp = 7, kReturn = 16; // DWARF's numbers of x86-64's registers (psABI 3.6.2)

enum class Step : uint8_t { kUnknown, kPlain, kEnd, kSlow };

// How to get from a frame to its caller's.
struct Rule {
  Step step = Step::kUnknown;
  bool is_from_rbp = false; // the frame's address is an offset from RBP, else from RSP
  bool saves_rbp = false;
  int32_t frame = 0; // that offset
  int32_t back = 0;  // offset of the return address from the frame's address
  int32_t rbp = 0;   // offset of the saved RBP from it
};

// Reads DWARF's encodings; the data is of the compiler, in memory.
struct Bytes {
  const uint8_t *at;

  template <typename Number> Number take() {
    Number value;
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  }
  uint64_t take_unsigned() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const uint8_t byte = *at++;
      value |= uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80)
        return value;
    }
  }
  int64_t take_signed() {
    uint64_t value = 0;
    for (unsigned shift = 0;;) {
      const uint8_t byte = *at++;
      value |= uint64_t(byte & 0x7F) << shift;
      shift += 7;
      if (byte < 0x80)
        return shift < 64 && (byte & 0x40) ? static_cast<int64_t>(value | ~uint64_t{0} << shift)
                                           : static_cast<int64_t>(value);
    }
  }
};

// Return the size of an encoded pointer (DW_EH_PE_*); 0 if it is not fixed.
size_t encoded_size(uint8_t encoding) {
  switch (encoding & 0x07) {
  case 0:
  case 4:
    return 8;
  case 2:
    return 2;
  case 3:
    return 4;
  default:
    return 0;
  }
}

// Where the caller's value of a register is.
struct Saved {
  enum { kSame, kAtOffset, kUndefined, kOther } how = kSame;
  int64_t offset = 0;
};

struct Row {
  uint64_t base = kRsp; // the register that the frame's address is an offset from; another number: an expression
  int64_t offset = 0;
  Saved rbp, back;
};

constexpr uint64_t kExpression = ~uint64_t{0};

// The part of a frame's description that all functions of a compilation share.
struct Common {
  uint64_t code = 1;
  int64_t data = 1;
  uint8_t encoding = 0;
  bool has_length = false, is_known = true;
  Bytes instructions{}, end{};
};

Common read_common(Bytes bytes) {
  Common common;
  const auto length = bytes.take<uint32_t>();
  common.end = {bytes.at + length};
  bytes.take<uint32_t>(); // 0: it is common
  const auto version = bytes.take<uint8_t>();
  const char *augmentation = reinterpret_cast<const char *>(bytes.at);
  bytes.at += std::strlen(augmentation) + 1;
  common.code = bytes.take_unsigned();
  common.data = bytes.take_signed();
  const uint64_t back = version == 1 ? bytes.take<uint8_t>() : bytes.take_unsigned();
  common.is_known = length != ~0u && back == kReturn && (!*augmentation || *augmentation == 'z');
  common.has_length = *augmentation == 'z';
  const uint8_t *after = common.has_length ? nullptr : bytes.at;
  if (common.has_length) {
    const uint64_t size = bytes.take_unsigned();
    after = bytes.at + size;
  }
  for (const char *letter = augmentation; common.is_known && *letter; ++letter)
    if (*letter == 'R') {
      common.encoding = bytes.take<uint8_t>();
    } else if (*letter == 'L') {
      bytes.take<uint8_t>();
    } else if (*letter == 'P') {
      const size_t size = encoded_size(bytes.take<uint8_t>());
      common.is_known = size != 0;
      bytes.at += size;
    } else if (*letter != 'z') {
      common.is_known = false; // 'S' among them: the frame of a signal
    }
  common.instructions = {after};
  return common;
}

// Run the instructions (DW_CFA_*) that are before an address; return false if one of them is not understood.
bool run(const Common &common, Bytes bytes, const uint8_t *end, uint64_t place, uint64_t wanted, const Row &first,
         Row &row) {
  constexpr unsigned kMostKept = 8;
  Row kept[kMostKept];
  unsigned count = 0;
  const auto set = [&](uint64_t number, const Saved &saved) {
    if (number == kRbp)
      row.rbp = saved;
    else if (number == kReturn)
      row.back = saved;
  };
  const auto restore = [&](uint64_t number) { set(number, number == kRbp ? first.rbp : first.back); };
  while (bytes.at < end && place <= wanted) {
    const auto code = bytes.take<uint8_t>();
    const uint64_t low = code & 0x3F;
    uint64_t number;
    switch (code >> 6 ? code & 0xC0 : code) {
    case 0x40: // advance_loc
      place += low * common.code;
      break;
    case 0x80: // offset
      set(low, {Saved::kAtOffset, static_cast<int64_t>(bytes.take_unsigned()) * common.data});
      break;
    case 0xC0:
      restore(low);
      break;
    case 0x00: // nop
      break;
    case 0x02:
      place += bytes.take<uint8_t>() * common.code;
      break;
    case 0x03:
      place += bytes.take<uint16_t>() * common.code;
      break;
    case 0x04:
      place += bytes.take<uint32_t>() * common.code;
      break;
    case 0x05: // offset_extended
      number = bytes.take_unsigned();
      set(number, {Saved::kAtOffset, static_cast<int64_t>(bytes.take_unsigned()) * common.data});
      break;
    case 0x06:
      restore(bytes.take_unsigned());
      break;
    case 0x07:
      set(bytes.take_unsigned(), {Saved::kUndefined});
      break;
    case 0x08:
      set(bytes.take_unsigned(), {Saved::kSame});
      break;
    case 0x09: // register
      number = bytes.take_unsigned();
      bytes.take_unsigned();
      set(number, {Saved::kOther});
      break;
    case 0x0A: // remember_state
      if (count == kMostKept)
        return false;
      kept[count++] = row;
      break;
    case 0x0B: // restore_state
      if (!count)
        return false;
      row = kept[--count];
      break;
    case 0x0C: // def_cfa
      row.base = bytes.take_unsigned();
      row.offset = static_cast<int64_t>(bytes.take_unsigned());
      break;
    case 0x0D:
      row.base = bytes.take_unsigned();
      break;
    case 0x0E:
      row.offset = static_cast<int64_t>(bytes.take_unsigned());
      break;
    case 0x0F: // def_cfa_expression
      number = bytes.take_unsigned();
      bytes.at += number;
      row.base = kExpression;
      break;
    case 0x10: // expression, val_expression
    case 0x16:
      set(bytes.take_unsigned(), {Saved::kOther});
      number = bytes.take_unsigned();
      bytes.at += number;
      break;
    case 0x11: // offset_extended_sf
      number = bytes.take_unsigned();
      set(number, {Saved::kAtOffset, bytes.take_signed() * common.data});
      break;
    case 0x12: // def_cfa_sf
      row.base = bytes.take_unsigned();
      row.offset = bytes.take_signed() * common.data;
      break;
    case 0x13:
      row.offset = bytes.take_signed() * common.data;
      break;
    case 0x2E: // GNU_args_size
      bytes.take_unsigned();
      break;
    default:
      return false;
    }
  }
  return true;
}

// Return the rule for code at an address.
Rule rule_at(uint64_t address) {
  FrameBases bases{};
  const void *entry = _Unwind_Find_FDE(reinterpret_cast<void *>(address), &bases);
  if (!entry)
    return {};
  constexpr Rule kSlow{Step::kSlow};
  Bytes bytes{static_cast<const uint8_t *>(entry)};
  const auto length = bytes.take<uint32_t>();
  const uint8_t *const end = bytes.at + length;
  const uint8_t *const field = bytes.at;
  const Common common = read_common({field - bytes.take<int32_t>()});
  const size_t size = encoded_size(common.encoding);
  if (!common.is_known || !size || length == ~0u)
    return kSlow;
  bytes.at += 2 * size; // begin and length of the code, which libgcc has read
  if (common.has_length) {
    const uint64_t more = bytes.take_unsigned();
    bytes.at += more;
  }
  Row row;
  const auto begin = reinterpret_cast<uint64_t>(bases.function);
  if (!run(common, common.instructions, common.end.at, begin, begin, row, row))
    return kSlow;
  const Row first = row;
  if (!run(common, bytes, end, begin, address, first, row))
    return kSlow;
  if (row.back.how == Saved::kUndefined)
    return {Step::kEnd};
  const auto fits = [](int64_t number) { return number == static_cast<int32_t>(number); };
  if ((row.base != kRsp && row.base != kRbp) || row.back.how != Saved::kAtOffset || row.rbp.how == Saved::kOther ||
      !fits(row.offset) || !fits(row.back.offset) || !fits(row.rbp.offset))
    return kSlow;
  return {Step::kPlain,
          row.base == kRbp,
          row.rbp.how == Saved::kAtOffset,
          static_cast<int32_t>(row.offset),
          static_cast<int32_t>(row.back.offset),
          static_cast<int32_t>(row.rbp.offset)};
}

bool is_loaded(uint64_t address) {
  return dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) { return int(is_in(*info, *static_cast<uint64_t *>(data))); },
      &address);
}

// Unwind by libgcc, for what has no simple rule.
Unwound unwind_slowly(const void **returns, size_t most) {
  struct Walk {
    const void **returns;
    size_t most, count = 0, skipped = 0;
  } walk{returns, most};
  constexpr size_t kOwn = 2; // this function and `unwind`, which calls it
  const _Unwind_Reason_Code end = _Unwind_Backtrace(
      [](_Unwind_Context *context, void *data) {
        auto &walked = *static_cast<Walk *>(data);
        const auto *address = reinterpret_cast<const void *>(_Unwind_GetIP(context));
        if (walked.skipped++ < kOwn || !address)
          return _URC_NO_REASON;
        if (walked.count == walked.most)
          return _URC_NORMAL_STOP;
        walked.returns[walked.count++] = address;
        return _URC_NO_REASON;
      },
      &walk);
  return {walk.count, end == _URC_END_OF_STACK};
}

} // namespace

LoadedObjects loaded_objects() {
  LoadedObjects now;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        *static_cast<LoadedObjects *>(data) = {info->dlpi_adds, info->dlpi_subs};
        return 1;
      },
      &now);
  return now;
}

__attribute__((noinline)) Unwound unwind(const LoadedObjects &objects, const void **returns, size_t most) {
  static auto *const rules = new std::unordered_map<uint64_t, Rule>; // never destroyed: programs launch while they end
  static LoadedObjects known;
  if (objects != known) {
    rules->clear();
    known = objects;
  }
  uint64_t place, rsp, rbp;
  asm volatile("lea 0(%%rip), %0\n mov %%rsp, %1\n mov %%rbp, %2" : "=&r"(place), "=&r"(rsp), "=&r"(rbp));
  Unwound all;
  for (bool is_own = true;; is_own = false) {
    Rule rule;
    if (const auto entry = rules->find(place); entry != rules->end()) {
      rule = entry->second;
    } else {
      // A return address is after its call, which may be the last instruction of its function.
      const uint64_t call = place - (is_own ? 0 : 1);
      rule = rule_at(call);
      if (is_loaded(call)) // JIT compilers put other code where code was
        rules->emplace(place, rule);
    }
    if (rule.step == Step::kSlow)
      return unwind_slowly(returns, most);
    if (rule.step != Step::kPlain) {
      all.is_whole = rule.step == Step::kEnd;
      return all;
    }
    const uint64_t frame = (rule.is_from_rbp ? rbp : rsp) + rule.frame;
    if (frame <= rsp && !is_own)
      return all; // unwind information that contradicts the stack
    const auto word = [&](int32_t offset) {
      uint64_t value;
      std::memcpy(&value, reinterpret_cast<const void *>(frame + offset), sizeof value);
      return value;
    };
    place = word(rule.back);
    if (rule.saves_rbp)
      rbp = word(rule.rbp);
    rsp = frame;
    if (!place) {
      all.is_whole = true;
      return all;
    }
    if (all.count == most)
      return all;
    returns[all.count++] = reinterpret_cast<const void *>(place);
  }
}

} // namespace luthier
