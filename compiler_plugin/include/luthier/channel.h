//===- luthier/channel.h - records from hooks to the host ------------------===//
//
// Part of Luthier, under the Apache License v2.0.
//
// A channel is a device variable that hooks push records to and that the host reads from while kernels run:
//
//   struct Store { uint64_t address; uint32_t lane; };
//   LUTHIER_RECORD(Store, address, lane)
//
//   __device__ luthier::channel<Store> stores;
//
//   LUTHIER_HOOK_ANNOTATE trace(uint64_t address) { stores.push({address, __lane_id()}); }
//
// The variable holds only a description of itself. Records go through a ring in memory that the host provides, one for
// each device; while nothing drains the ring, records are counted and dropped.
//
// luthier/channel_layout.h has the layout in memory; it is generated from the host's description.
//
//===----------------------------------------------------------------------===//
#ifndef LUTHIER_CHANNEL_H
#define LUTHIER_CHANNEL_H

#include <luthier/channel_layout.h>
#include <luthier/luthier.h>

#if __cplusplus < 201402L
#error "luthier/channel.h needs C++14: compile with -std=c++14 or later"
#endif

namespace luthier {

/// Behaviour of a wave that finds a channel full.
enum class when_full : uint32_t {
  wait = detail::kWait, ///< It waits until the host has taken enough: nothing is lost.
  drop = detail::kDrop, ///< It continues; its records are counted as dropped.
};

//===----------------------------------------------------------------------===//
// Contents of records
//===----------------------------------------------------------------------===//

namespace detail {

template <typename T, bool = __is_enum(T)> struct Plain {
  typedef T Type;
};
template <typename T> struct Plain<T, true> {
  typedef __underlying_type(T) Type;
};

template <typename T> struct KindOf {
  static constexpr char value = 'V';
};
#define LUTHIER_KIND(type, letter)                                                                                     \
  template <> struct KindOf<type> {                                                                                    \
    static constexpr char value = letter;                                                                              \
  };
LUTHIER_KIND(bool, 'b')
LUTHIER_KIND(char, char(-1) < 0 ? 'i' : 'u')
LUTHIER_KIND(signed char, 'i')
LUTHIER_KIND(short, 'i')
LUTHIER_KIND(int, 'i')
LUTHIER_KIND(long, 'i')
LUTHIER_KIND(long long, 'i')
LUTHIER_KIND(unsigned char, 'u')
LUTHIER_KIND(unsigned short, 'u')
LUTHIER_KIND(unsigned int, 'u')
LUTHIER_KIND(unsigned long, 'u')
LUTHIER_KIND(unsigned long long, 'u')
LUTHIER_KIND(_Float16, 'f')
LUTHIER_KIND(float, 'f')
LUTHIER_KIND(double, 'f')
#undef LUTHIER_KIND
template <typename T> struct KindOf<T *> {
  static constexpr char value = 'u';
};

template <typename T> struct Element {
  typedef typename Plain<T>::Type Type;
  static constexpr uint16_t count = 0;
};
template <typename T, size_t N> struct Element<T[N]> {
  typedef typename Plain<T>::Type Type;
  static constexpr uint16_t count = N;
};

template <typename T> constexpr Field field(const char *name, size_t offset) {
  typedef typename Element<T>::Type Type;
  Field result{};
  for (int i = 0; i < 31 && name[i]; ++i)
    result.name[i] = name[i];
  result.offset = uint16_t(offset);
  result.size = uint16_t(sizeof(Type));
  result.count = Element<T>::count;
  result.kind = KindOf<Type>::value;
  return result;
}

template <size_t Size> struct Name {
  static_assert(Size <= sizeof(Field::name), "the name of a field has at most 31 characters");
};

template <unsigned Count> struct Fields {
  static constexpr unsigned count = Count;
  Field each[Count];
};

/// The fields of a record: those that LUTHIER_RECORD names, or one if the record is a number.
template <typename Record> struct FieldsOf {
  static_assert(KindOf<typename Plain<Record>::Type>::value != 'V', "use LUTHIER_RECORD(structure, fields...) first");
  static constexpr Fields<1> get() { return {{field<Record>("", 0)}}; }
};

} // namespace detail

/// Tells the host the fields of a structure: `LUTHIER_RECORD(Store, address, lane)`, at namespace scope, at most 16.
/// They are numbers, enumerations, pointers and arrays of them; anything else is bytes to the host.
#define LUTHIER_RECORD(record, ...)                                                                                    \
  template <> struct luthier::detail::FieldsOf<record> {                                                               \
    typedef record Record;                                                                                             \
    static constexpr auto get() {                                                                                      \
      return luthier::detail::Fields<LUTHIER_COUNT(__VA_ARGS__)>{{LUTHIER_EACH(__VA_ARGS__)}};                         \
    }                                                                                                                  \
  };
#define LUTHIER_FIELD(name)                                                                                            \
  (static_cast<void>(luthier::detail::Name<sizeof(#name)>{}),                                                          \
   luthier::detail::field<decltype(Record::name)>(#name, __builtin_offsetof(Record, name)))
#define LUTHIER_COUNT(...) LUTHIER_17TH(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define LUTHIER_17TH(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, ...) q
#define LUTHIER_EACH(...) LUTHIER_JOIN(LUTHIER_EACH_, LUTHIER_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define LUTHIER_JOIN(a, b) LUTHIER_JOINED(a, b)
#define LUTHIER_JOINED(a, b) a##b
#define LUTHIER_EACH_1(a) LUTHIER_FIELD(a)
#define LUTHIER_EACH_2(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_1(__VA_ARGS__)
#define LUTHIER_EACH_3(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_2(__VA_ARGS__)
#define LUTHIER_EACH_4(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_3(__VA_ARGS__)
#define LUTHIER_EACH_5(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_4(__VA_ARGS__)
#define LUTHIER_EACH_6(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_5(__VA_ARGS__)
#define LUTHIER_EACH_7(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_6(__VA_ARGS__)
#define LUTHIER_EACH_8(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_7(__VA_ARGS__)
#define LUTHIER_EACH_9(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_8(__VA_ARGS__)
#define LUTHIER_EACH_10(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_9(__VA_ARGS__)
#define LUTHIER_EACH_11(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_10(__VA_ARGS__)
#define LUTHIER_EACH_12(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_11(__VA_ARGS__)
#define LUTHIER_EACH_13(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_12(__VA_ARGS__)
#define LUTHIER_EACH_14(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_13(__VA_ARGS__)
#define LUTHIER_EACH_15(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_14(__VA_ARGS__)
#define LUTHIER_EACH_16(a, ...) LUTHIER_FIELD(a), LUTHIER_EACH_15(__VA_ARGS__)

//===----------------------------------------------------------------------===//
// Channels
//===----------------------------------------------------------------------===//

namespace detail {

/// Part that is the same in all channels. The host finds channels by their first bytes.
constexpr Channel channelOf(uint32_t record_size, uint32_t field_count, uint32_t capacity, when_full mode, Kind kind) {
  return {LUTHIER_CHANNEL_MAGIC, kVersion, record_size, field_count, capacity, uint32_t(mode), kind, 0, 0, 0, 0};
}

/// Return a value that is the same in all lanes as a scalar.
LUTHIER_INLINE uint32_t uniform(uint32_t value) { return uint32_t(__builtin_amdgcn_readfirstlane(int(value))); }
LUTHIER_INLINE uint64_t uniform(uint64_t value) {
  return uint64_t(uniform(uint32_t(value >> 32))) << 32 | uniform(uint32_t(value));
}

/// Loads from memory to which the host may write at the same time.
template <typename T> LUTHIER_INLINE T load(const T *place) {
  return __hip_atomic_load(place, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

/// Room for records of a wave.
struct Room {
  char *ring;      // nullptr: there is none
  uint64_t ticket; // of this lane's first record
  uint32_t shift;

  LUTHIER_INLINE uint64_t slot(uint64_t ticket) const { return ticket & ((uint64_t(1) << shift) - 1); }

  /// Writes a record. The host takes it when its sequence word is the ticket's turn around the ring, from 1 on.
  template <typename Record> LUTHIER_INLINE void put(uint64_t ticket, const Record &record) const {
    const uint64_t place = slot(ticket);
    char *sequence = ring + sizeof(Ring);
    char *records = sequence + (uint64_t(sizeof(uint32_t)) << shift);
    reinterpret_cast<Record *>(records)[place] = record;
    __hip_atomic_store(reinterpret_cast<uint32_t *>(sequence) + place, uint32_t(ticket >> shift) + 1, __ATOMIC_RELEASE,
                       __HIP_MEMORY_SCOPE_SYSTEM);
  }
};

/// Reserves `each` consecutive tickets for every active lane by one atomic operation of the wave, and waits until there
/// is room for them.
LUTHIER_INLINE Room reserve(Channel &channel, uint32_t each) {
  const uint64_t lanes = __builtin_amdgcn_read_exec();
  const uint32_t rank = __builtin_amdgcn_mbcnt_hi(uint32_t(lanes >> 32), __builtin_amdgcn_mbcnt_lo(uint32_t(lanes), 0));
  const uint64_t count = uint64_t(uint32_t(__builtin_popcountll(lanes))) * each;
  const uint64_t distance = uniform(uint64_t(load(&channel.ring)));
  if (distance == 0) {
    if (rank == 0)
      __hip_atomic_fetch_add(&channel.unheard, count, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    return {nullptr, 0, 0};
  }
  Ring &ring = *reinterpret_cast<Ring *>(reinterpret_cast<char *>(&channel) + int64_t(distance));
  const uint32_t shift = uniform(load(&channel.shift));
  const uint64_t capacity = uint64_t(1) << shift;
  uint64_t first = 0;
  if (uniform(load(&ring.mode)) != uint32_t(when_full::wait)) {
    uint64_t reserved = uniform(load(&ring.reserved));
    for (;;) {
      const uint64_t read = uniform(__hip_atomic_load(&ring.read, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM));
      if (int64_t(reserved + count - read) > int64_t(capacity)) {
        if (rank == 0)
          __hip_atomic_fetch_add(&ring.dropped, count, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
        return {nullptr, 0, 0};
      }
      first = reserved;
      if (rank == 0)
        __hip_atomic_compare_exchange_strong(&ring.reserved, &reserved, reserved + count, __ATOMIC_RELAXED,
                                             __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
      reserved = uniform(reserved);
      if (reserved == first)
        break;
    }
  } else {
    if (rank == 0)
      first = __hip_atomic_fetch_add(&ring.reserved, count, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    first = uniform(first);
    // Tickets are served in order, so the wave with the earliest one waits only for the host.
    while (
        int64_t(first + count - uniform(__hip_atomic_load(&ring.read, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM))) >
        int64_t(capacity)) {
      if (uniform(load(&ring.mode)) == kClosed)
        return {nullptr, 0, 0};
      __builtin_amdgcn_s_sleep(8);
    }
  }
  return {reinterpret_cast<char *>(&ring), first + uint64_t(rank) * each, shift};
}

} // namespace detail

/// A channel of records, a device variable: `__device__ luthier::channel<Store> stores;`. `Record` is a number, or a
/// structure that LUTHIER_RECORD describes, of at most 128 bytes.
///
/// The constructor takes the capacity of the ring in records (the host makes it a power of two), and what happens when
/// the ring is full: `__device__ luthier::channel<Store> stores{1 << 20, luthier::when_full::drop};`
template <typename Record> struct channel {
  static_assert(__is_trivially_copyable(Record), "records are copied byte by byte");
  static_assert(sizeof(Record) <= detail::kLargestRecord, "a record has at most 128 bytes");

  constexpr channel(uint32_t capacity = 0, when_full mode = when_full::wait)
      : head_(detail::channelOf(sizeof(Record), decltype(fields_)::count, capacity, mode, detail::kRecords)),
        fields_(detail::FieldsOf<Record>::get()) {}

  /// Pushes a record of each active lane. The records of a wave are consecutive, in the order of their lanes.
  LUTHIER_INLINE void push(const Record &record) {
    const detail::Room room = detail::reserve(head_, 1);
    if (room.ring)
      room.put(room.ticket, record);
  }

  /// Pushes one record of the wave: that of its first active lane.
  LUTHIER_INLINE void pushWave(const Record &record) {
    const uint64_t lanes = __builtin_amdgcn_read_exec();
    if (__builtin_amdgcn_mbcnt_hi(uint32_t(lanes >> 32), __builtin_amdgcn_mbcnt_lo(uint32_t(lanes), 0)) == 0)
      push(record);
  }

private:
  detail::Channel head_;
  decltype(detail::FieldsOf<Record>::get()) fields_;
};

//===----------------------------------------------------------------------===//
// printf
//===----------------------------------------------------------------------===//

namespace detail {

/// Record of a call: the format's address, the number of arguments and four bits for the kind of each, kLineFirst
/// arguments; the other arguments, if any, in a second slot that begins with kLineMore.
struct Line {
  uint64_t words[kLineWords];
};

/// Type of `number` for classes that do not convert to a number. (That of `blockIdx.x` does.)
struct NoNumber {};
template <typename T> T &any();
template <typename T> auto number(int) -> decltype(+any<T>());
template <typename T> NoNumber number(...);

template <typename T, bool = IsClass<T>::value> struct PassedAs {
  static constexpr char kind = KindOf<typename Plain<T>::Type>::value;
  static constexpr bool is_small = sizeof(T) <= 4;
  static constexpr Passed value = kind == 'f'                    ? kDouble
                                  : kind == 'b'                  ? kInt
                                  : kind == 'i' && is_small      ? kInt
                                  : kind == 'i'                  ? kLong
                                  : kind == 'u' && sizeof(T) < 4 ? kInt
                                  : kind == 'u' && is_small      ? kUnsigned
                                  : kind == 'u'                  ? kUnsignedLong
                                                                 : kOther;
};
template <typename T> struct PassedAs<T, true> {
  static constexpr Passed value = PassedAs<decltype(number<T>(0))>::value;
};
template <> struct PassedAs<NoNumber, true> {
  static constexpr Passed value = kOther;
};
template <typename T> struct PassedAs<T *, false> {
  static constexpr Passed value = kPointer;
};
template <> struct PassedAs<const char *, false> {
  static constexpr Passed value = kString;
};
template <> struct PassedAs<char *, false> {
  static constexpr Passed value = kString;
};

template <typename T> LUTHIER_INLINE uint64_t passed(T value) {
  static_assert(PassedAs<T>::value != kOther, "luthier::printf takes numbers, pointers and strings");
  return static_cast<uint64_t>(value);
}
template <typename T> LUTHIER_INLINE uint64_t passed(T *value) { return reinterpret_cast<uint64_t>(value); }
LUTHIER_INLINE uint64_t passed(double value) { return __builtin_bit_cast(uint64_t, value); }
LUTHIER_INLINE uint64_t passed(float value) { return passed(static_cast<double>(value)); }
LUTHIER_INLINE uint64_t passed(_Float16 value) { return passed(static_cast<double>(value)); }

/// Kinds of the arguments, as in the second word of a line.
template <typename... Arguments> struct Signature {
  static_assert(sizeof...(Arguments) <= kLineMost, "luthier::printf takes at most 13 arguments");
  static constexpr uint64_t get() {
    const Passed each[] = {kOther, PassedAs<Arguments>::value...};
    uint64_t result = sizeof...(Arguments);
    for (unsigned i = 1; i <= sizeof...(Arguments); ++i)
      result |= uint64_t(each[i]) << (4 + 4 * i);
    return result;
  }
};

constexpr bool isOneOf(char letter, const char *letters) {
  for (; *letters; ++letters)
    if (*letters == letter)
      return true;
  return false;
}

/// Return whether a format takes exactly these arguments, by C's rules.
constexpr bool isFit(const char *format, uint64_t signature) {
  const unsigned count = signature & 255;
  unsigned at = 0;
  for (; *format; ++format) {
    if (*format != '%')
      continue;
    if (*++format == '%')
      continue;
    while (isOneOf(*format, "-+ #0"))
      ++format;
    for (int part = 0; part < 2; ++part) { // width and precision
      if (part == 1) {
        if (*format != '.')
          break;
        ++format;
      }
      if (*format == '*') {
        ++format;
        if (at >= count || (signature >> (8 + 4 * at++) & 15) > kUnsigned)
          return false;
      } else {
        while (isOneOf(*format, "0123456789"))
          ++format;
      }
    }
    bool is_long = false, is_short = false;
    while (isOneOf(*format, "hljzt")) {
      is_short = is_short || *format == 'h';
      is_long = is_long || *format != 'h';
      ++format;
    }
    if (!*format || at >= count || (is_long && is_short))
      return false;
    const uint64_t kind = signature >> (8 + 4 * at++) & 15;
    if (isOneOf(*format, "diouxX")) {
      if (is_long ? kind != kLong && kind != kUnsignedLong : kind != kInt && kind != kUnsigned)
        return false;
    } else if (isOneOf(*format, "fFeEgG")) {
      if (kind != kDouble || is_short)
        return false;
    } else if (*format == 'c') {
      if (kind > kUnsigned || is_long || is_short)
        return false;
    } else if (*format == 's') {
      if (kind != kString || is_long || is_short)
        return false;
    } else if (*format == 'p') {
      if ((kind != kPointer && kind != kString) || is_long || is_short)
        return false;
    } else {
      return false;
    }
  }
  return at == count;
}

/// The module's own channel of lines.
struct Lines {
  Channel head;
  Fields<1> fields;
  constexpr Lines()
      : head(channelOf(sizeof(Line), 1, 0, when_full::wait, kLines)),
        fields{{field<uint64_t[kLineWords]>("words", 0)}} {}
};
template <typename> struct Printer {
  static __attribute__((device)) Lines lines;
};
template <typename T> __attribute__((device)) Lines Printer<T>::lines;

} // namespace detail

/// Prints a line for each active lane, on the host, as C's printf does. The format and printed strings must be
/// constants of the module. There are at most 13 arguments; `%n`, `%a` and long double are not supported.
template <typename... Arguments>
LUTHIER_INLINE void printf(const char *format, Arguments... arguments)
    __attribute__((diagnose_if(!detail::isFit(format, detail::Signature<Arguments...>::get()),
                               "the format does not fit the arguments of luthier::printf", "error"))) {
  constexpr uint64_t count = sizeof...(Arguments), slots = count > detail::kLineFirst ? 2 : 1;
  const uint64_t each[] = {detail::passed(format), detail::Signature<Arguments...>::get(),
                           detail::passed(arguments)...};
  detail::Line first, second;
  for (unsigned i = 0; i < detail::kLineWords; ++i)
    first.words[i] = i < 2 + count ? each[i] : 0;
  second.words[0] = detail::kLineMore;
  for (unsigned i = 1; i < 8; ++i)
    second.words[i] = 7 + i < 2 + count ? each[7 + i] : 0;
  const detail::Room room = detail::reserve(detail::Printer<void>::lines.head, slots);
  if (!room.ring)
    return;
  room.put(room.ticket, first);
  if (slots == 2)
    room.put(room.ticket + 1, second);
}

} // namespace luthier

#endif // LUTHIER_CHANNEL_H
