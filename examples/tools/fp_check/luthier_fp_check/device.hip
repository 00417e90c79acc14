// Device side of the check for exceptional numbers: a look at each result, and at operands only where that has found
// one.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// By site, in lanes: NaN that is new, infinity that is new, NaN of an operand, infinity of an operand.
__device__ uint64_t found[16384][4];

namespace {

enum Class : int { NaN = 0x3, Infinity = 0x204 }; // as v_cmp_class has them
enum class Type : uint32_t { None, F16, BF16, F32, F64 };

/// Where a number is, in six bits: the operand, its type, and whether it is in the upper half (shapes.py).
struct Part {
  uint32_t code;
  __device__ uint32_t operand() const { return code & 3; }
  __device__ Type type() const { return static_cast<Type>(code >> 2 & 7); }
  __device__ uint32_t high() const { return code >> 5 & 1; }
};

/// Whether a number is of some classes. What part says is known when a hook is compiled.
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

/// What an instruction has made in a lane: by column of `found` whether one of its numbers is that.
struct Seen {
  bool any = false, columns[4] = {};
};

/// Looks at a number and at what it is made of.
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

/// Adds up lanes, of scalars one; nearly always there are none.
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

// Registers are given as bits, and as zero what an operation does not read. The numbers that it gives are `first` and
// `second`; where `skipped` is not zero it has written nothing.
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
