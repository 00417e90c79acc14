// Device side of the check for exceptional numbers: it examines each result, and operands only of exceptional ones.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// Lanes by site: new NaN, new infinity, NaN from an operand, infinity from an operand.
__device__ uint64_t found[16384][4];
/// Matrix products that were not examined, since some lanes were inactive.
__device__ uint64_t partial = 0;

namespace {

enum Class : int { NaN = 0x3, Infinity = 0x204 }; // in the encoding of v_cmp_class
enum class Type : uint32_t { None, F16, BF16, F32, F64 };

/// Place of a number, in six bits: the operand, its type, and whether it is in the upper half (shapes.py).
struct Part {
  uint32_t code;
  __device__ uint32_t operand() const { return code & 3; }
  __device__ Type type() const { return static_cast<Type>(code >> 2 & 7); }
  __device__ uint32_t high() const { return code >> 5 & 1; }
};

/// Returns whether a number is of some classes; `part` is constant when a hook is compiled.
template <typename Bits> __device__ inline bool is(Part part, Bits bits, int classes) {
  const auto half = static_cast<uint32_t>(static_cast<uint32_t>(bits) >> (16 * part.high()));
  switch (part.type()) {
  case Type::F16:
    return __builtin_amdgcn_classh(__builtin_bit_cast(_Float16, static_cast<uint16_t>(half)), classes);
  case Type::BF16:
    return __builtin_amdgcn_classf(__builtin_bit_cast(float, half << 16), classes);
  case Type::F32:
    return __builtin_amdgcn_classf(
        __builtin_bit_cast(float, static_cast<uint32_t>(static_cast<uint64_t>(bits) >> (32 * part.high()))), classes);
  case Type::F64:
    return __builtin_amdgcn_class(__builtin_bit_cast(double, static_cast<uint64_t>(bits)), classes);
  default:
    return false;
  }
}

/// Result of an instruction in a lane: for each column of `found`, whether one of its numbers belongs there.
struct Seen {
  bool any = false, columns[4] = {};
};

/// Examines a number and its operands.
template <typename Result, typename Operand>
__device__ inline void look(Seen &seen, uint64_t element, Result result, const Operand (&operands)[3]) {
  if (element == 0)
    return;
  const Part part{static_cast<uint32_t>(element & 63)};
  const bool exceptional = is(part, result, NaN | Infinity), nan = is(part, result, NaN);
  bool flow = false;
#pragma unroll
  for (uint64_t rest = element >> 6; rest; rest >>= 6) {
    const Part source{static_cast<uint32_t>(rest & 63)};
    flow |= is(source, operands[source.operand()], nan ? NaN : NaN | Infinity);
  }
  seen.any |= exceptional;
  for (uint32_t column = 0; column < 4; ++column)
    seen.columns[column] |= exceptional && column == 2u * flow + !nan;
}

/// Counts lanes, one for scalars; nearly always there are none.
template <typename Result, typename Operand>
__device__ inline void add(Result result, const Operand (&operands)[3], uint32_t skipped, uint64_t first,
                           uint64_t second, bool once, uint32_t site) {
  Seen seen;
  look(seen, first, result, operands);
  look(seen, second, result, operands);
  if (__ballot(seen.any && !skipped) == 0)
    return;
  for (uint32_t column = 0; column < 4; ++column)
    if (const uint64_t lanes = __ballot(seen.columns[column] && !skipped))
      luthier::sAtomicAdd<uint64_t>(&found[site][column], once ? 1 : __builtin_popcountll(lanes));
}

} // namespace

// Registers are passed as bits, unused operands as zero. `first` and `second` are the numbers that it returns; if
// `skipped` is not zero, it has written nothing.
LUTHIER_HOOK_ANNOTATE narrow(uint32_t result, uint32_t a, uint32_t b, uint32_t c, uint32_t skipped, uint64_t first,
                             uint64_t second, bool once, uint32_t site) {
  add(result, {a, b, c}, skipped, first, second, once, site);
}
LUTHIER_HOOK_ANNOTATE wide(uint64_t result, uint64_t a, uint64_t b, uint64_t c, uint32_t skipped, uint64_t first,
                           uint64_t second, bool once, uint32_t site) {
  add(result, {a, b, c}, skipped, first, second, once, site);
}
// Conversions.
LUTHIER_HOOK_ANNOTATE narrowed(uint32_t result, uint64_t a, uint32_t skipped, uint64_t first, uint32_t site) {
  add(result, {a, a, a}, skipped, first, 0, false, site);
}
LUTHIER_HOOK_ANNOTATE widened(uint64_t result, uint32_t a, uint32_t skipped, uint64_t first, uint32_t site) {
  add(result, {a, a, a}, skipped, first, 0, false, site);
}

// Matrix products -----------------------------------------------------------------------------------------------------

namespace {

enum class Format : uint32_t { F16, BF16, F32, F64, FP8, BF8, FP8_NAN, BF8_NAN };
enum Flag : uint32_t { HasNaN = 1, HasInfinity = 2 };

template <uint32_t Count> using Registers = uint32_t __attribute__((ext_vector_type(Count)));

__device__ inline uint32_t flags_of(float value) {
  return (__builtin_amdgcn_classf(value, NaN) ? HasNaN : 0) |
         (__builtin_amdgcn_classf(value, Infinity) ? HasInfinity : 0);
}

/// Flags of an 8-bit number; some formats have one NaN and no infinity.
__device__ inline uint32_t flags_of(Format format, uint32_t byte) {
  const uint32_t magnitude = byte & 0x7f;
  if (format == Format::FP8)
    return magnitude == 0x7f ? HasNaN : 0;
  if (format == Format::BF8)
    return magnitude > 0x7c ? HasNaN : magnitude == 0x7c ? HasInfinity : 0;
  return byte == 0x80 ? HasNaN : 0;
}

/// Flags of all numbers in a register; for 64-bit numbers `low` is the register before it.
__device__ inline uint32_t flags_of(uint32_t form, uint32_t bits, uint32_t low) {
  const auto format = static_cast<Format>(form >> 2);
  uint32_t flags = 0;
  switch (format) {
  case Format::F16:
  case Format::BF16:
    for (uint32_t half = 0; half < 2; ++half)
      if (form >> half & 1) {
        const uint32_t part = bits >> (16 * half) & 0xffff;
        flags |= format == Format::BF16
                     ? flags_of(__builtin_bit_cast(float, part << 16))
                     : flags_of(static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(part))));
      }
    return flags;
  case Format::F32:
    return flags_of(__builtin_bit_cast(float, bits));
  case Format::F64: {
    const auto value = __builtin_bit_cast(double, static_cast<uint64_t>(bits) << 32 | low);
    return (__builtin_amdgcn_class(value, NaN) ? HasNaN : 0) |
           (__builtin_amdgcn_class(value, Infinity) ? HasInfinity : 0);
  }
  default:
    for (uint32_t shift = 0; shift < 32; shift += 8)
      flags |= flags_of(format, bits >> shift & 0xff);
    return flags;
  }
}

template <uint32_t Count> __device__ inline uint32_t flags_in(uint32_t form, Registers<Count> registers) {
  uint32_t flags = 0;
  const uint32_t step = static_cast<Format>(form >> 2) == Format::F64 ? 2 : 1;
#pragma unroll
  for (uint32_t at = step - 1; at < Count; at += step)
    flags |= flags_of(form, registers[at], registers[at + 1 - step]);
  return flags;
}

template <uint32_t Count>
__device__ inline void count(uint32_t form, Registers<Count> registers, uint32_t operands, uint32_t site) {
  if (__builtin_popcountll(__builtin_amdgcn_read_exec()) < __builtin_amdgcn_wavefrontsize()) {
    luthier::sAtomicAdd<uint64_t>(&partial, 1);
    return;
  }
  const uint32_t flags = flags_in<Count>(form, registers);
  if (__ballot(flags != 0) == 0)
    return;
  const uint64_t nan = __ballot((operands & HasNaN) != 0), any = __ballot(operands != 0);
  for (uint32_t kind = 0; kind < 2; ++kind)
    if (const uint64_t lanes = __ballot((flags >> kind & 1) != 0))
      luthier::sAtomicAdd<uint64_t>(&found[site][kind + 2 * ((kind ? any : nan) != 0)], __builtin_popcountll(lanes));
}

} // namespace

// `operand_N` adds the flags of a matrix in N registers to a register; `product_N` examines a result.
#define MATRIX(Count)                                                                                                  \
  LUTHIER_HOOK_ANNOTATE operand_##Count(Registers<Count> registers, uint32_t form, uint32_t flags, bool more) {        \
    const uint32_t before = more ? luthier::readReg<uint32_t>(flags) : 0;                                              \
    luthier::writeReg<uint32_t>(flags, before | flags_in<Count>(form, registers));                                     \
  }                                                                                                                    \
  LUTHIER_HOOK_ANNOTATE product_##Count(Registers<Count> registers, uint32_t form, uint32_t operands, uint32_t site) { \
    count<Count>(form, registers, operands, site);                                                                     \
  }
MATRIX(1)
MATRIX(2)
MATRIX(4)
MATRIX(8)
MATRIX(16)
MATRIX(32)
#undef MATRIX

// Exponents -----------------------------------------------------------------------------------------------------------

/// Results by site: of each exponent, of other kinds, and of the largest exponent beyond the largest number of a format
/// (exponents.py).
__device__ uint64_t exponents[4096][80];
/// By site: the smallest and the largest number that is neither 0 nor infinite, as bits of doubles without sign; the
/// smallest as its complement.
__device__ uint64_t extremes[4096][2];

namespace {

constexpr int32_t kLowest = -32, kCount = 64;
enum Column : uint32_t { Zero = kCount, Below, Above, Infinite, Invalid, Tiny, OverE4M3, OverE5M2, OverF16, OverBF16 };

/// Returns a number without its sign as a double's bits, denormals included, whatever MODE is.
__device__ inline uint64_t double_of(uint64_t bits, uint32_t fraction, uint32_t exponent_bits) {
  const uint64_t magnitude = bits & ((1ull << (fraction + exponent_bits)) - 1);
  const int32_t bias = (1 << (exponent_bits - 1)) - 1;
  uint64_t mantissa = magnitude & ((1ull << fraction) - 1);
  int32_t exponent = static_cast<int32_t>(magnitude >> fraction);
  if (exponent_bits == 11 || magnitude == 0)
    return magnitude;
  if (exponent == (1 << exponent_bits) - 1)
    return 0x7ffull << 52 | mantissa << (52 - fraction);
  if (exponent == 0) {
    const int32_t shift = __builtin_clzll(mantissa) - (63 - static_cast<int32_t>(fraction));
    mantissa = (mantissa << shift) & ((1ull << fraction) - 1);
    exponent = 1 - shift;
  }
  return static_cast<uint64_t>(exponent - bias + 1023) << 52 | mantissa << (52 - fraction);
}

template <typename Bits> __device__ inline uint64_t double_of(Part part, Bits bits) {
  const auto word = static_cast<uint32_t>(static_cast<uint64_t>(bits) >> (32 * part.high()));
  const uint32_t half = static_cast<uint32_t>(bits) >> (16 * part.high());
  switch (part.type()) {
  case Type::F16:
    return double_of(half, 10, 5);
  case Type::BF16:
    return double_of(half, 7, 8);
  case Type::F32:
    return double_of(word, 23, 8);
  default:
    return double_of(static_cast<uint64_t>(bits), 52, 11);
  }
}

__device__ inline uint32_t column_of(uint64_t magnitude) {
  if (magnitude == 0)
    return Zero;
  const auto field = static_cast<int32_t>(magnitude >> 52);
  if (field == 0x7ff)
    return magnitude & ((1ull << 52) - 1) ? Invalid : Infinite;
  const int32_t place = field - 1023 - kLowest;
  return place < 0 ? Below : place < kCount ? place : Above;
}

__device__ inline uint64_t bits_of(double value) { return __builtin_bit_cast(uint64_t, value); }

/// Adds lanes to a column.
__device__ inline void add_lanes(uint32_t site, uint32_t column, bool mine) {
  if (const uint64_t lanes = __ballot(mine))
    luthier::sAtomicAdd<uint64_t>(&exponents[site][column], __builtin_popcountll(lanes));
}

template <typename Bits> __device__ inline void note(uint64_t element, Bits bits, bool wanted, uint32_t site) {
  if (element == 0)
    return;
  const uint64_t magnitude = double_of(Part{static_cast<uint32_t>(element & 63)}, bits);
  const uint32_t column = column_of(magnitude);
  for (uint64_t left = __ballot(wanted); left;) {
    const uint32_t one = __builtin_amdgcn_readlane(column, __builtin_ctzll(left));
    const uint64_t same = __ballot(wanted && column == one);
    luthier::sAtomicAdd<uint64_t>(&exponents[site][one], __builtin_popcountll(same));
    left &= ~same;
  }
  const bool number = wanted && magnitude != 0 && magnitude < bits_of(__builtin_inf());
  add_lanes(site, Tiny, number && magnitude < bits_of(0x1p-126));
  add_lanes(site, OverE4M3, number && magnitude > bits_of(464) && magnitude < bits_of(512));
  add_lanes(site, OverE5M2, number && magnitude >= bits_of(61440) && magnitude < bits_of(65536));
  add_lanes(site, OverF16, number && magnitude >= bits_of(65520) && magnitude < bits_of(65536));
  add_lanes(site, OverBF16, number && magnitude >= bits_of(0x1.ffp127));
  if (number) {
    atomicMax(reinterpret_cast<unsigned long long *>(&extremes[site][0]), ~magnitude);
    atomicMax(reinterpret_cast<unsigned long long *>(&extremes[site][1]), magnitude);
  }
}

template <typename Bits>
__device__ inline void note_both(Bits result, uint32_t skipped, uint64_t first, uint64_t second, bool once,
                                 uint32_t site) {
  const uint64_t active = __builtin_amdgcn_read_exec();
  const bool wanted = !skipped && (!once || __lane_id() == static_cast<uint32_t>(__builtin_ctzll(active)));
  note(first, result, wanted, site);
  note(second, result, wanted, site);
}

} // namespace

LUTHIER_HOOK_ANNOTATE exponents_narrow(uint32_t result, uint32_t skipped, uint64_t first, uint64_t second, bool once,
                                       uint32_t site) {
  note_both(result, skipped, first, second, once, site);
}
LUTHIER_HOOK_ANNOTATE exponents_wide(uint64_t result, uint32_t skipped, uint64_t first, uint64_t second, bool once,
                                     uint32_t site) {
  note_both(result, skipped, first, second, once, site);
}
